//! Attempts to log in. A right token is told from a wrong one by a fast digest before the slow hash,
//! so that no flood of wrong ones, under whatever name, keeps its person out: a wrong one costs the
//! server a digest, and its sender a place for a second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::people::LoginRefusal;
use crate::sessions::{SecretDigest, digest};
use crate::tokens::{PersonToken, QuickMatch, TOKEN_MAX, name_of, quick_match, verify};

/// The time that a failed attempt occupies its places. Its answer comes then, whatever was wrong.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Failing attempts at once: of one address, and in all.
const FAILING: Limit = Limit { each: 8, all: 64 };
/// Attempts at once for which only the slow hash can tell a wrong token: of one address, in all, and
/// under one name.
const SLOW: Limit = Limit { each: 2, all: 16 };
const SLOW_OF_NAME: Limit = Limit { each: 8, all: 16 };
/// Digests of right tokens that are remembered; there are as many as tokens that were right.
const RIGHT: usize = 1_024;

/// The attempts to log in at a server.
pub(crate) struct LoginAttempts {
    failing: Arc<Places<Origin>>,
    slow: Arc<Places<Origin>>,
    slow_of_name: Arc<Places<String>>,
    /// The tokens that are verified now.
    pending: Mutex<BTreeMap<SecretDigest, watch::Receiver<Option<Verified>>>>,
    /// The hash that each right token was verified for: the slow hash is computed once.
    right: Mutex<BTreeMap<SecretDigest, String>>,
    /// Held while a token is verified, which takes memory and a processor.
    verifying: tokio::sync::Mutex<()>,
}

/// The outcome of a verification: which of the stored tokens it is.
type Verified = Result<PersonToken, LoginRefusal>;

/// From where an attempt comes: of version 6 the network, whose addresses one client has.
type Origin = Option<IpAddr>;

/// How many attempts there are at once.
#[derive(Clone, Copy)]
struct Limit {
    each: usize,
    all: usize,
}

/// Places for attempts.
struct Places<K> {
    limit: Limit,
    counts: Mutex<BTreeMap<K, usize>>,
}

/// A place, until it is dropped.
struct Place<K: Ord> {
    of: Arc<Places<K>>,
    key: K,
}

/// What the fast digest says about a token.
enum Candidates {
    /// It is the one of this stored token.
    Right(PersonToken),
    /// Only the slow hash can tell.
    Slow(Vec<PersonToken>),
    /// It is of nobody.
    None,
}

impl LoginAttempts {
    pub(crate) fn new() -> Self {
        Self {
            failing: Places::new(FAILING),
            slow: Places::new(SLOW),
            slow_of_name: Places::new(SLOW_OF_NAME),
            pending: Mutex::default(),
            right: Mutex::default(),
            verifying: tokio::sync::Mutex::default(),
        }
    }

    /// Returns which of the stored tokens this one is. Requests that come with one token at once are
    /// one attempt.
    pub(crate) async fn verify(
        self: &Arc<Self>,
        token: &str,
        peer: Option<IpAddr>,
        candidates: Vec<PersonToken>,
    ) -> Verified {
        let mut verified = self.verification(token, peer, candidates)?;
        let verified = verified.wait_for(Option::is_some).await;
        verified.ok().and_then(|verified| verified.clone()).unwrap_or(Err(LoginRefusal::WrongToken))
    }

    /// Returns where the outcome for a token appears, and begins its verification unless it is in
    /// progress.
    fn verification(
        self: &Arc<Self>,
        token: &str,
        peer: Option<IpAddr>,
        candidates: Vec<PersonToken>,
    ) -> Result<watch::Receiver<Option<Verified>>, LoginRefusal> {
        // No work that grows with a stranger's bytes.
        let token = if token.len() > TOKEN_MAX { "" } else { token };
        let (digest, began) = (digest(token), Instant::now());
        let candidates = self.candidates(token, &digest, candidates);
        // Held while it waits: nothing below does; the work is in a task of its own.
        let mut pending = lock(&self.pending);
        if let Some(verified) = pending.get(&digest) {
            return Ok(verified.clone());
        }
        // Those of right tokens are as few as the tokens, and wait for nobody's wrong ones.
        let origin = origin(peer);
        let occupied = match &candidates {
            Candidates::Right(_) => None,
            Candidates::Slow(_) => {
                let name = name_of(token).unwrap_or_default().to_owned();
                let of_name = self.slow_of_name.take(name).ok_or(LoginRefusal::Busy)?;
                Some((self.slow.take(origin).ok_or(LoginRefusal::Busy)?, Some(of_name)))
            }
            Candidates::None => Some((self.failing.take(origin).ok_or(LoginRefusal::Busy)?, None)),
        };
        let (outcome, verified) = watch::channel(None);
        pending.insert(digest, verified.clone());
        let (attempts, token) = (Arc::clone(self), token.to_owned());
        // In a task of its own: a client that leaves frees neither its places nor the processor.
        tokio::spawn(async move {
            let _occupied = occupied;
            let found = attempts.verify_alone(token, digest, candidates).await;
            if found.is_none() {
                // Not after the slow hash: the time tells nothing about what was wrong.
                sleep_until(began + FAILED_PAUSE).await;
            }
            // Removed first: whoever comes now begins anew, and sees a token that was revoked.
            lock(&attempts.pending).remove(&digest);
            outcome.send_replace(Some(found.ok_or(LoginRefusal::WrongToken)));
        });
        Ok(verified)
    }

    fn candidates(
        &self,
        token: &str,
        digest: &SecretDigest,
        candidates: Vec<PersonToken>,
    ) -> Candidates {
        let right = lock(&self.right).get(digest).cloned();
        let mut slow = Vec::new();
        for candidate in candidates {
            match quick_match(token, &candidate.hash) {
                _ if right.as_ref() == Some(&candidate.hash) => {
                    return Candidates::Right(candidate);
                }
                QuickMatch::Same => return Candidates::Right(candidate),
                QuickMatch::Unknown => slow.push(candidate),
                QuickMatch::Other => {}
            }
        }
        if slow.is_empty() { Candidates::None } else { Candidates::Slow(slow) }
    }

    async fn verify_alone(
        &self,
        token: String,
        digest: SecretDigest,
        candidates: Candidates,
    ) -> Option<PersonToken> {
        let candidates = match candidates {
            Candidates::Right(person) => vec![person],
            Candidates::Slow(several) => several,
            Candidates::None => return None,
        };
        let known = lock(&self.right).get(&digest).cloned();
        if let Some(person) = candidates.iter().find(|it| Some(&it.hash) == known.as_ref()) {
            return Some(person.clone());
        }
        let found = {
            let _verifying = self.verifying.lock().await;
            let verifying = tokio::task::spawn_blocking(move || {
                name_of(&token)?;
                candidates.into_iter().find(|person| verify(&token, &person.hash))
            });
            verifying.await.ok().flatten()?
        };
        let mut right = lock(&self.right);
        if right.len() >= RIGHT {
            right.clear();
        }
        right.insert(digest, found.hash.clone());
        Some(found)
    }
}

/// The origin of an attempt from this address.
fn origin(peer: Option<IpAddr>) -> Origin {
    Some(match peer?.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address @ IpAddr::V4(_) => address,
    })
}

impl<K: Ord + Clone> Places<K> {
    fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self { limit, counts: Mutex::default() })
    }

    fn take(self: &Arc<Self>, key: K) -> Option<Place<K>> {
        let mut counts = lock(&self.counts);
        let own = counts.get(&key).copied().unwrap_or_default();
        if own >= self.limit.each || counts.values().sum::<usize>() >= self.limit.all {
            return None;
        }
        counts.insert(key.clone(), own + 1);
        Some(Place { of: Arc::clone(self), key })
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.of.counts);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
        }
        counts.retain(|_, count| *count > 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use conclave_core::policy::roles::Role;
    use conclave_core::types::ids::Millis;

    use super::*;
    use crate::tokens::NewToken;

    /// The hash of a token as programs before this one made them: its salt says nothing.
    fn old_hash(token: &str) -> String {
        use argon2::password_hash::PasswordHasher as _;
        let hash = argon2::Argon2::default().hash_password_with_salt(token.as_bytes(), &[7; 16]);
        hash.unwrap().to_string()
    }

    fn person(hash: String) -> PersonToken {
        let (name, role, config) = ("ada".to_owned(), Role::User, None);
        PersonToken { name, role, config, hash, created: Millis(1) }
    }

    fn wrong(number: usize) -> String {
        format!("ada.{number:064x}")
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    struct Door {
        attempts: Arc<LoginAttempts>,
        person: PersonToken,
    }

    impl Door {
        fn new(hash: String) -> Self {
            Self { attempts: Arc::new(LoginAttempts::new()), person: person(hash) }
        }

        fn send(&self, token: &str, peer: u8) -> tokio::task::JoinHandle<Verified> {
            let (attempts, candidates) = (Arc::clone(&self.attempts), vec![self.person.clone()]);
            let token = token.to_owned();
            tokio::spawn(async move { attempts.verify(&token, address(peer), candidates).await })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_with_one_token_are_one_attempt() {
        let token = NewToken::of("ada").unwrap();
        for hash in [token.hash.clone(), old_hash(&token.token)] {
            let door = Door::new(hash);
            let right: Vec<_> = (0..100).map(|_| door.send(&token.token, 1)).collect();
            for answer in right {
                assert_eq!(answer.await.unwrap().unwrap().name, "ada");
            }
            assert!(
                lock(&door.attempts.pending).is_empty()
                    && lock(&door.attempts.slow.counts).is_empty()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_under_the_name_of_a_person_keeps_nobody_out() {
        let token = NewToken::of("ada").unwrap();
        let door = Door::new(token.hash.clone());
        let flood: Vec<_> = (0..1_000).map(|number| door.send(&wrong(number), 1)).collect();
        tokio::task::yield_now().await;
        // From the same address too, as behind a proxy.
        for peer in [1, 2] {
            assert_eq!(door.send(&token.token, peer).await.unwrap().unwrap().name, "ada");
        }
        let (mut wrong_ones, mut busy) = (0, 0);
        for answer in flood {
            match answer.await.unwrap().unwrap_err() {
                LoginRefusal::Busy => busy += 1,
                _ => wrong_ones += 1,
            }
        }
        assert_eq!((wrong_ones, busy), (FAILING.each, 1_000 - FAILING.each));
        assert!(lock(&door.attempts.failing.counts).is_empty(), "the places are free again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_an_older_program_is_reached_from_another_address_and_then_as_fast() {
        let token = NewToken::of("ada").unwrap();
        let door = Door::new(old_hash(&token.token));
        let flood: Vec<_> = (0..100).map(|number| door.send(&wrong(number), 1)).collect();
        tokio::task::yield_now().await;
        assert_eq!(door.send(&token.token, 2).await.unwrap().unwrap().name, "ada");
        for answer in flood {
            assert!(answer.await.unwrap().is_err());
        }
        // It was right once: from the address of the flood too.
        let flood: Vec<_> = (100..200).map(|number| door.send(&wrong(number), 1)).collect();
        tokio::task::yield_now().await;
        assert_eq!(door.send(&token.token, 1).await.unwrap().unwrap().name, "ada");
        drop(flood);
        let revoked = door.attempts.verify(&token.token, address(1), Vec::new()).await;
        assert_eq!(revoked.unwrap_err(), LoginRefusal::WrongToken, "what is right is in the store");
    }

    #[tokio::test(start_paused = true)]
    async fn each_wrong_token_is_answered_after_the_same_time() {
        let token = NewToken::of("ada").unwrap();
        let long = "x".repeat(1 << 20);
        for hash in [token.hash.clone(), old_hash(&token.token)] {
            let door = Door::new(hash);
            for wrong in [wrong(1), token.token.replace("ada", "bob"), String::new(), long.clone()]
            {
                let began = Instant::now();
                assert!(door.send(&wrong, 1).await.unwrap().is_err());
                assert_eq!(began.elapsed().as_secs(), FAILED_PAUSE.as_secs());
            }
        }
    }

    #[test]
    fn addresses_of_one_network_of_version_6_are_one_origin() {
        let of = |text: &str| origin(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
