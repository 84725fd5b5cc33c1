//! Retry policy: exponential backoff, the server's own delay, and the limits.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

/// Maximum backoff.
const LONGEST: Duration = Duration::from_secs(20);

/// Maximum backoff while a server loads its model: a user waits for the moment when it is ready.
const LONGEST_LOADING: Duration = Duration::from_secs(5);

/// The remaining retries of a request and its deadline.
#[derive(Debug)]
pub(crate) struct Patience {
    remaining: u32,
    next: Duration,
    deadline: Instant,
    /// The end of the wait for a server that loads its model.
    loaded_by: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(retries: u32, first: Duration, deadline: Instant) -> Self {
        Self { remaining: retries, next: first.min(LONGEST), deadline, loaded_by: None }
    }

    /// Returns the delay before the next attempt. `None` if no retries are left, or the delay would
    /// pass the deadline.
    pub(crate) fn wait(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        self.remaining = self.remaining.checked_sub(1)?;
        let wait = self.delay(retry_after, LONGEST);
        (Instant::now().checked_add(wait)? < self.deadline).then_some(wait)
    }

    /// Returns the delay before the next attempt at a server that loads its model, which may take
    /// `most` altogether. It costs no retry, because the server works on it.
    pub(crate) fn wait_for_loading(
        &mut self,
        retry_after: Option<Duration>,
        most: Duration,
    ) -> Option<Duration> {
        let now = Instant::now();
        let loaded_by = *self.loaded_by.get_or_insert(now.checked_add(most)?);
        let wait = self.delay(retry_after, LONGEST_LOADING);
        (now.checked_add(wait)? < loaded_by.min(self.deadline)).then_some(wait)
    }

    fn delay(&mut self, retry_after: Option<Duration>, most: Duration) -> Duration {
        let own = jittered(self.next.min(most));
        self.next = self.next.saturating_mul(2).min(LONGEST);
        retry_after.unwrap_or(own)
    }
}

/// A random delay between half of `wait` and all of it, so that clients that failed together do not
/// return together. A hasher's seed is random enough.
fn jittered(wait: Duration) -> Duration {
    let share = RandomState::new().hash_one(0) % 1000;
    let half = wait / 2;
    half + half.mul_f64(share as f64 / 1000.0)
}

/// The delay that the server asks for: `retry-after-ms`, or `retry-after` in seconds or as a date
/// by the server's clock.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str, unit: f64| {
        text.parse::<f64>().ok().and_then(|amount| Duration::try_from_secs_f64(amount * unit).ok())
    };
    if let Some(wait) = text("retry-after-ms").and_then(|text| number(text, 0.001)) {
        return Some(wait);
    }
    let after = text(RETRY_AFTER.as_str())?;
    number(after, 1.0).or_else(|| {
        let at = httpdate::parse_http_date(after).ok()?;
        let now = text(DATE.as_str())
            .and_then(|date| httpdate::parse_http_date(date).ok())
            .unwrap_or_else(SystemTime::now);
        Some(at.duration_since(now).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
    use tokio::time::Instant;

    use super::{LONGEST, Patience, retry_after};

    fn parse(headers: &[(&str, &str)]) -> Option<Duration> {
        let pairs = headers.iter().map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        });
        retry_after(&pairs.collect::<HeaderMap>())
    }

    #[test]
    fn the_server_s_word_is_read_in_every_form() {
        assert_eq!(parse(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(parse(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(
            parse(&[("retry-after", "9"), ("retry-after-ms", "12.5")]),
            Some(Duration::from_micros(12_500))
        );
        let date = "Sat, 21 Nov 2026 15:00:30 GMT";
        assert_eq!(
            parse(&[("retry-after", date), ("date", "Sat, 21 Nov 2026 15:00:00 GMT")]),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            parse(&[("retry-after", date), ("date", "Sat, 21 Nov 2026 16:00:00 GMT")]),
            Some(Duration::ZERO)
        );
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        assert!(
            parse(&[("retry-after", &soon)]).is_some_and(
                |wait| wait > Duration::from_secs(60) && wait <= Duration::from_secs(90)
            )
        );
    }

    #[test]
    fn what_makes_no_sense_is_not_waited_for() {
        for text in ["soon", "-1", "NaN", "inf", ""] {
            assert_eq!(parse(&[("retry-after", text)]), None, "{text}");
        }
        assert_eq!(parse(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_vary() {
        let mut patience =
            Patience::new(9, Duration::from_millis(500), Instant::now() + Duration::from_secs(600));
        let mut full_wait = Duration::from_millis(500);
        for _ in 0..9 {
            let wait = patience.wait(None).unwrap();
            assert!(wait >= full_wait / 2 && wait <= full_wait, "{wait:?} of {full_wait:?}");
            full_wait = (full_wait * 2).min(LONGEST);
        }
        assert_eq!(patience.wait(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn loading_costs_no_retry_and_has_its_own_limit() {
        let mut patience =
            Patience::new(1, Duration::from_millis(500), Instant::now() + Duration::from_secs(600));
        let (began, most) = (Instant::now(), Duration::from_secs(60));
        let mut waits = 0;
        while let Some(wait) = patience.wait_for_loading(None, most) {
            assert!(wait <= super::LONGEST_LOADING, "{wait:?}");
            tokio::time::advance(wait).await;
            waits += 1;
        }
        assert!(waits >= 12 && began.elapsed() <= most, "{waits} waits in {:?}", began.elapsed());
        assert_eq!(patience.wait_for_loading(Some(most), most), None);
        assert!(patience.wait(None).is_some(), "the retry is left");
        let mut hurried =
            Patience::new(0, Duration::from_millis(500), Instant::now() + Duration::from_secs(2));
        assert_eq!(hurried.wait_for_loading(Some(Duration::from_secs(3)), most), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_s_time_is_kept_unless_it_is_past_the_deadline() {
        let mut patience =
            Patience::new(3, Duration::from_millis(500), Instant::now() + Duration::from_secs(60));
        assert_eq!(patience.wait(Some(Duration::from_secs(59))), Some(Duration::from_secs(59)));
        assert_eq!(patience.wait(Some(Duration::from_secs(61))), None);
        assert_eq!(patience.wait(Some(Duration::MAX)), None);
    }
}
