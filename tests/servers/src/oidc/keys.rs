//! Keys of a provider, made when they are first used, and tokens that are signed with them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Map, Value, json};

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenSignature {
    Rs256,
    Es256,
    EdDsa,
    /// Not at all, which no reader may take.
    None,
    /// With the public key as a shared secret, which no reader may take.
    Hs256,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Keys by kind and name.
#[derive(Default)]
pub(super) struct KeyRing(BTreeMap<(TokenSignature, String), SigningKey>);

const KINDS: [TokenSignature; 3] =
    [TokenSignature::Rs256, TokenSignature::Es256, TokenSignature::EdDsa];

impl KeyRing {
    /// The public keys with these names, as a key set has them. Their kinds are those that have
    /// been used.
    pub(super) fn published(&self, names: &[String]) -> Vec<Value> {
        let all = self.0.iter().filter(|((_, name), _)| names.contains(name));
        all.map(|((kind, name), key)| key.public(*kind, name)).collect()
    }

    /// A token with these claims.
    pub(super) fn sign(
        &mut self,
        signature: TokenSignature,
        name: &str,
        claims: &Map<String, Value>,
    ) -> String {
        let word = match signature {
            TokenSignature::Rs256 => "RS256",
            TokenSignature::Es256 => "ES256",
            TokenSignature::EdDsa => "EdDSA",
            TokenSignature::None => "none",
            TokenSignature::Hs256 => "HS256",
        };
        let header = json!({ "alg": word, "kid": name, "typ": "JWT" });
        let part = |value: &Value| BASE64.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&Value::Object(claims.clone())));
        let bytes = match signature {
            TokenSignature::None => Vec::new(),
            TokenSignature::Hs256 => {
                let public = self.key(TokenSignature::Es256, name).public_bytes();
                let key = hmac::Key::new(hmac::HMAC_SHA256, &public);
                hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
            kind => self.key(kind, name).sign(signed.as_bytes()),
        };
        format!("{signed}.{}", BASE64.encode(bytes))
    }

    fn key(&mut self, kind: TokenSignature, name: &str) -> &SigningKey {
        debug_assert!(KINDS.contains(&kind));
        let made = || SigningKey::new(kind).expect("a key is made");
        self.0.entry((kind, name.to_owned())).or_insert_with(made)
    }
}

impl SigningKey {
    fn new(kind: TokenSignature) -> Result<Self, String> {
        let random = SystemRandom::new();
        let unspecified = |_| "the system has no randomness".to_owned();
        let rejected = |error: ring::error::KeyRejected| error.to_string();
        match kind {
            TokenSignature::Rs256 => {
                // ring makes no keys of RSA.
                let words = ["genpkey", "-algorithm", "RSA", "-outform", "DER"];
                let made = Command::new("openssl").args(words).stderr(Stdio::null()).output();
                let made = made.map_err(|error| format!("openssl: {error}"))?;
                // In one of two forms, by its version.
                let key = RsaKeyPair::from_der(&made.stdout);
                let key = key.or_else(|_| RsaKeyPair::from_pkcs8(&made.stdout));
                Ok(Self::Rsa(Box::new(key.map_err(rejected)?)))
            }
            TokenSignature::EdDsa => {
                let made = Ed25519KeyPair::generate_pkcs8(&random).map_err(unspecified)?;
                Ok(Self::Ed25519(Ed25519KeyPair::from_pkcs8(made.as_ref()).map_err(rejected)?))
            }
            _ => {
                let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let made = EcdsaKeyPair::generate_pkcs8(kind, &random).map_err(unspecified)?;
                let key = EcdsaKeyPair::from_pkcs8(kind, made.as_ref(), &random);
                Ok(Self::P256(key.map_err(rejected)?))
            }
        }
    }

    fn public_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rsa(key) => key.public_key().as_ref().to_vec(),
            Self::P256(key) => key.public_key().as_ref().to_vec(),
            Self::Ed25519(key) => key.public_key().as_ref().to_vec(),
        }
    }

    fn public(&self, kind: TokenSignature, name: &str) -> Value {
        let mut jwk = match self {
            Self::Rsa(key) => {
                let RsaPublicKeyComponents { n, e } =
                    RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({ "kty": "RSA", "n": BASE64.encode(n), "e": BASE64.encode(e) })
            }
            Self::P256(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
                json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
            }
            Self::Ed25519(key) => {
                let x = BASE64.encode(key.public_key().as_ref());
                json!({ "kty": "OKP", "crv": "Ed25519", "x": x })
            }
        };
        jwk["kid"] = name.into();
        jwk["use"] = "sig".into();
        // Some providers say it, others do not.
        if kind == TokenSignature::Rs256 {
            jwk["alg"] = "RS256".into();
        }
        jwk
    }

    fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).expect("it signs");
                signature
            }
            Self::P256(key) => key.sign(&random, bytes).expect("it signs").as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(bytes).as_ref().to_vec(),
        }
    }
}
