//! Tokens of identity: their signature by a key of the provider, and whether they are for this
//! server and this log-in. RS256, ES256 and EdDSA count; no signature and one with a shared secret
//! never do.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use conclave_core::types::ids::Millis;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::Value;

/// Bytes of a token. Some providers put hundreds of groups into it.
const TOKEN_MAX: usize = 64 << 10;
/// Seconds that the clocks of server and provider may differ.
const SKEW: f64 = 60.0;

/// The reason why a token of identity is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdTokenProblem {
    #[error("it has no token of identity")]
    Missing,
    #[error("its token is malformed")]
    Malformed,
    #[error("its token has a signature of a kind that does not count")]
    Algorithm,
    #[error("its token is signed with a key that the provider does not name")]
    UnknownKey,
    #[error("the signature of its token is wrong")]
    Signature,
    #[error("its token is from another issuer")]
    Issuer,
    #[error("its token is for another server")]
    Audience,
    #[error("its token belongs to another log-in")]
    Nonce,
    #[error("its token has expired, or is of the future")]
    Time,
}

/// What the token of a log-in must say.
pub(super) struct Expected<'e> {
    pub(super) issuer: &'e str,
    pub(super) client_id: &'e str,
    /// `None` for a token of a refresh, which has none.
    pub(super) nonce: Option<&'e str>,
}

/// A kind of signature that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A key of a provider. Each kind of key verifies one kind of signature, whatever a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifyingKey {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl VerifyingKey {
    /// The key of an entry of a key set; `None` for one that does not verify such tokens.
    pub(super) fn of_jwk(jwk: &Value) -> Option<Self> {
        let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
        let public = match (jwk["kty"].as_str()?, jwk["crv"].as_str()) {
            ("RSA", _) => PublicKey::Rsa { n: bytes("n")?, e: bytes("e")? },
            ("EC", Some("P-256")) => PublicKey::P256([vec![4], bytes("x")?, bytes("y")?].concat()),
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes("x")?),
            _ => return None,
        };
        let key = Self { id: jwk["kid"].as_str().map(str::to_owned), public };
        let is_for_signatures = jwk["use"].as_str().is_none_or(|purpose| purpose == "sig");
        let algorithm = jwk["alg"].as_str();
        let fits = algorithm.is_none_or(|word| Algorithm::of_word(word) == Some(key.algorithm()));
        (is_for_signatures && fits).then_some(key)
    }

    fn algorithm(&self) -> Algorithm {
        match self.public {
            PublicKey::Rsa { .. } => Algorithm::Rs256,
            PublicKey::P256(_) => Algorithm::Es256,
            PublicKey::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.public {
            PublicKey::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                signed,
                signature,
            ),
            PublicKey::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            PublicKey::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
        };
        verified.is_ok()
    }
}

/// A token of which nothing is believed yet.
pub(super) struct UnverifiedToken<'t> {
    algorithm: Algorithm,
    key: Option<String>,
    signed: &'t [u8],
    signature: Vec<u8>,
    claims: Value,
}

/// Splits a token.
///
/// # Errors
/// `Malformed`, or `Algorithm` for a signature that does not count.
pub(super) fn parse(token: &str) -> Result<UnverifiedToken<'_>, IdTokenProblem> {
    let malformed = IdTokenProblem::Malformed;
    if token.len() > TOKEN_MAX {
        return Err(malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(malformed)?;
    let decoded = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed);
    let json = |text: &str| -> Result<Value, IdTokenProblem> {
        let value: Value = serde_json::from_slice(&decoded(text)?).map_err(|_| malformed)?;
        if value.is_object() { Ok(value) } else { Err(malformed) }
    };
    let header = json(header)?;
    // What a header calls critical must be understood, and nothing beyond the basics is.
    if header.get("crit").is_some() {
        return Err(malformed);
    }
    let algorithm = header["alg"].as_str().and_then(Algorithm::of_word);
    Ok(UnverifiedToken {
        algorithm: algorithm.ok_or(IdTokenProblem::Algorithm)?,
        key: header["kid"].as_str().map(str::to_owned),
        signed: signed.as_bytes(),
        signature: decoded(signature)?,
        claims: json(claims)?,
    })
}

impl UnverifiedToken<'_> {
    /// Returns the key with which the token says that it is signed. Without a name it is the only
    /// one of its kind.
    pub(super) fn find_key<'k>(&self, keys: &'k [VerifyingKey]) -> Option<&'k VerifyingKey> {
        let mut fitting = keys.iter().filter(|key| key.algorithm() == self.algorithm);
        match &self.key {
            Some(id) => fitting.find(|key| key.id.as_ref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }

    /// Returns the claims, if the token is signed with the key and says what it must.
    pub(super) fn verified(
        self,
        key: Option<&VerifyingKey>,
        expected: &Expected<'_>,
        now: Millis,
    ) -> Result<Value, IdTokenProblem> {
        let key = key.ok_or(IdTokenProblem::UnknownKey)?;
        if key.algorithm() != self.algorithm {
            return Err(IdTokenProblem::Algorithm);
        }
        if !key.verify(self.signed, &self.signature) {
            return Err(IdTokenProblem::Signature);
        }
        check(&self.claims, expected, now)?;
        Ok(self.claims)
    }
}

fn check(claims: &Value, expected: &Expected<'_>, now: Millis) -> Result<(), IdTokenProblem> {
    if claims["iss"].as_str() != Some(expected.issuer) {
        return Err(IdTokenProblem::Issuer);
    }
    let is_own = |value: &Value| value.as_str() == Some(expected.client_id);
    let (is_for_us, is_shared) = match &claims["aud"] {
        Value::Array(all) => (all.iter().any(is_own), all.len() > 1),
        one => (is_own(one), false),
    };
    // A token for several servers says for which of them it was made.
    let party = claims.get("azp");
    let is_party = party.map_or(!is_shared, is_own);
    if !is_for_us || !is_party {
        return Err(IdTokenProblem::Audience);
    }
    if let Some(nonce) = expected.nonce
        && claims["nonce"].as_str() != Some(nonce)
    {
        return Err(IdTokenProblem::Nonce);
    }
    if claims["sub"].as_str().is_none_or(str::is_empty) {
        return Err(IdTokenProblem::Malformed);
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 have few digits")]
    let now = now.0 as f64 / 1_000.0;
    let time = |name: &str| claims[name].as_f64();
    let is_past = |time: f64| time <= now + SKEW;
    let is_valid = time("exp").is_some_and(|end| end + SKEW > now)
        && time("iat").is_some_and(is_past)
        && (claims.get("nbf").is_none() || time("nbf").is_some_and(is_past));
    if is_valid { Ok(()) } else { Err(IdTokenProblem::Time) }
}
