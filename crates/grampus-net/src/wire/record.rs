//! Sealed records: how the bytes of a [`super::Wire`] cross a network that others can read and write.
//!
//! A record is a head of 5 bytes in the shape of TLS 1.3 (kind, version, length), at most [`RECORD`] bytes of content
//! and a tag of 16. rustls makes the connection, checks certificates and agrees on a cipher; the keys here come out of
//! its exporter (RFC 8446, 7.5), not out of its own records, so that the two never share a key. What rustls would cost
//! instead is two more copies of every byte. These hold:
//! - A nonce is used once per key. It is the key's start value combined with the number of the record, as in TLS; the
//!   number only grows, and is zero again only together with a new key. Each direction has keys of its own.
//! - A key seals at most [`LIFE`] records, far below what AES-GCM bears (2^24.5 of this size; RFC 8446, 5.5). Both
//!   sides count, so that the next key needs no message. It comes from a secret that goes one way: who learns a key
//!   later cannot read what was sealed under those before.
//! - A record that is changed, left out, repeated, moved or cut short fails: its number, kind and length are under the
//!   tag. The number of an opener advances only over records that hold, so that after an error no other can hold.
//! - The end is a record too. An end of the stream without it is told from one with it.

use ring::aead::{Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf;

/// Most bytes of content in a record, as in TLS.
pub(super) const RECORD: usize = 16 << 10;
/// Size of what stands before the content.
pub(super) const HEAD: usize = 5;
/// Size of what stands after the content.
pub(super) const TAG: usize = 16;
/// Records under one key.
const LIFE: u64 = 1 << 22;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of the caller.
    Data = 23,
    /// The last record.
    Farewell = 21,
}

/// Why what came is no record of this wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A head that no sealer writes.
    Head,
    /// A tag that does not fit.
    Seal,
}

/// One direction's keys, one after the other.
struct Keys {
    algorithm: &'static Algorithm,
    now: LessSafeKey,
    start: [u8; NONCE_LEN],
    /// Records that used the key.
    count: u64,
    life: u64,
    next: [u8; 32],
}

/// A length for HKDF.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Keys {
    fn new(algorithm: &'static Algorithm, secret: [u8; 32], life: u64) -> Result<Self, Unspecified> {
        let mut bytes = [0; 32 + NONCE_LEN + 32];
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &secret)
            .expand(&[b"grampus wire keys 1"], Length(bytes.len()))?
            .fill(&mut bytes)?;
        let (key, rest) = bytes.split_at(32);
        let (start, next) = rest.split_at(NONCE_LEN);
        Ok(Self {
            algorithm,
            now: LessSafeKey::new(UnboundKey::new(algorithm, &key[..algorithm.key_len()])?),
            start: start.try_into().map_err(|_| Unspecified)?,
            count: 0,
            life,
            next: next.try_into().map_err(|_| Unspecified)?,
        })
    }

    /// Makes sure that the key in use may be used once more.
    fn renew(&mut self) -> Result<(), Unspecified> {
        if self.count == self.life {
            *self = Self::new(self.algorithm, self.next, self.life)?;
        }
        Ok(())
    }

    fn nonce(&self) -> Nonce {
        let mut bytes = self.start;
        for (byte, number) in bytes[NONCE_LEN - 8..].iter_mut().zip(self.count.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(bytes)
    }
}

fn head(kind: Kind, content: usize) -> [u8; HEAD] {
    // At most 16,400, so that it fits.
    let [high, low] = ((content + TAG) as u16).to_be_bytes();
    [kind as u8, 3, 3, high, low]
}

/// What a head announces: the kind, and how many bytes of content.
pub(super) fn parse_head(bytes: [u8; HEAD]) -> Result<(Kind, usize), Broken> {
    let [kind, 3, 3, high, low] = bytes else {
        return Err(Broken::Head);
    };
    let kind = [Kind::Data, Kind::Farewell]
        .into_iter()
        .find(|known| *known as u8 == kind)
        .ok_or(Broken::Head)?;
    match usize::from(u16::from_be_bytes([high, low])).checked_sub(TAG) {
        Some(content) if content <= RECORD => Ok((kind, content)),
        _ => Err(Broken::Head),
    }
}

/// The sending side.
pub(super) struct Sealer(Keys);

impl Sealer {
    pub fn new(algorithm: &'static Algorithm, secret: [u8; 32]) -> Result<Self, Unspecified> {
        Keys::new(algorithm, secret, LIFE).map(Self)
    }

    /// Appends a record that holds `content`, at most [`RECORD`] bytes.
    pub fn seal(&mut self, kind: Kind, content: &[u8], out: &mut Vec<u8>) -> Result<(), Unspecified> {
        if content.len() > RECORD {
            return Err(Unspecified);
        }
        self.0.renew()?;
        let nonce = self.0.nonce();
        self.0.count += 1;
        let head = head(kind, content.len());
        out.extend_from_slice(&head);
        let from = out.len();
        out.extend_from_slice(content);
        let tag = self
            .0
            .now
            .seal_in_place_separate_tag(nonce, Aad::from(head), &mut out[from..])?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// The receiving side.
pub(super) struct Opener(Keys);

impl Opener {
    pub fn new(algorithm: &'static Algorithm, secret: [u8; 32]) -> Result<Self, Unspecified> {
        Keys::new(algorithm, secret, LIFE).map(Self)
    }

    /// Opens the content of the next record where it lies. After an error it holds nothing of meaning.
    pub fn open(&mut self, head: [u8; HEAD], content: &mut [u8], tag: [u8; TAG]) -> Result<(), Broken> {
        self.0.renew().map_err(|_| Broken::Seal)?;
        let (nonce, head) = (self.0.nonce(), Aad::from(head));
        self.0
            .now
            .open_in_place_separate_tag(nonce, head, Tag::from(tag), content, 0..)
            .map_err(|_| Broken::Seal)?;
        self.0.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ring::aead::{AES_128_GCM, CHACHA20_POLY1305};

    use super::*;

    const SECRET: [u8; 32] = [9; 32];

    fn pair(algorithm: &'static Algorithm, life: u64) -> (Sealer, Opener) {
        let keys = || Keys::new(algorithm, SECRET, life).unwrap();
        (Sealer(keys()), Opener(keys()))
    }

    fn open(opener: &mut Opener, record: &[u8]) -> Result<(Kind, Vec<u8>), Broken> {
        let (head, rest) = record.split_first_chunk().unwrap();
        let (content, tag) = rest.split_last_chunk().unwrap();
        let (kind, length) = parse_head(*head)?;
        assert_eq!(length, content.len());
        let mut content = content.to_vec();
        opener.open(*head, &mut content, *tag)?;
        Ok((kind, content))
    }

    fn sealed(sealer: &mut Sealer, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(Kind::Data, content, &mut out).unwrap();
        assert_eq!(out.len(), HEAD + content.len() + TAG);
        out
    }

    #[test]
    fn what_is_sealed_is_opened_across_many_keys() {
        for algorithm in [&AES_128_GCM, &CHACHA20_POLY1305] {
            let (mut sealer, mut opener) = pair(algorithm, 3);
            for number in 0..20usize {
                let content = vec![number as u8; number * 800];
                let record = sealed(&mut sealer, &content);
                assert_eq!(open(&mut opener, &record), Ok((Kind::Data, content)));
            }
            let mut out = Vec::new();
            sealer.seal(Kind::Farewell, &[], &mut out).unwrap();
            assert_eq!(open(&mut opener, &out), Ok((Kind::Farewell, Vec::new())));
        }
    }

    #[test]
    fn no_nonce_comes_twice_under_a_key_and_no_key_twice() {
        let (mut sealer, _) = pair(&AES_128_GCM, 5);
        let mut seen = std::collections::HashSet::new();
        let mut keys = std::collections::HashSet::new();
        for number in 0..200 {
            sealer.0.renew().unwrap();
            keys.insert(sealer.0.next);
            assert!(seen.insert((sealer.0.next, *sealer.0.nonce().as_ref())));
            assert_eq!(keys.len(), number / 5 + 1);
            sealed(&mut sealer, b"x");
        }
        // The same content never gives the same bytes.
        let mut records = std::collections::HashSet::new();
        assert!((0..100).all(|_| records.insert(sealed(&mut sealer, &[0; 64]))));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (mut sealer, mut opener) = pair(&AES_128_GCM, 100);
        let record = sealed(&mut sealer, b"content");
        for place in 0..record.len() * 8 {
            let mut changed = record.clone();
            changed[place / 8] ^= 1 << (place % 8);
            // A length that changed would lead a reader elsewhere; what it finds there does not hold either.
            if !(24..40).contains(&place) {
                assert!(open(&mut opener, &changed).is_err(), "bit {place}");
            }
        }
        assert!(open(&mut opener, &record).is_ok());
        assert_eq!(open(&mut opener, &record), Err(Broken::Seal), "repeated");
        let _left_out = sealed(&mut sealer, b"a");
        let next = sealed(&mut sealer, b"b");
        assert_eq!(open(&mut opener, &next), Err(Broken::Seal), "out of turn");
        let (_, mut other) = (0, Opener(Keys::new(&AES_128_GCM, [8; 32], 100).unwrap()));
        assert_eq!(open(&mut other, &record), Err(Broken::Seal), "another key");
    }

    #[test]
    fn heads_that_no_sealer_writes_are_refused_before_anything_is_read_for_them() {
        assert_eq!(parse_head(head(Kind::Data, RECORD)), Ok((Kind::Data, RECORD)));
        for wrong in [
            [22, 3, 3, 0, 16],
            [23, 3, 1, 0, 16],
            [23, 3, 3, 0, 15],
            [23, 3, 3, 0x40, 0x11],
            [23, 3, 3, 0xff, 0xff],
        ] {
            assert_eq!(parse_head(wrong), Err(Broken::Head), "{wrong:?}");
        }
        let (mut sealer, _) = pair(&AES_128_GCM, 1);
        assert!(
            sealer
                .seal(Kind::Data, &[0; RECORD + 1], &mut Vec::new())
                .is_err()
        );
    }
}
