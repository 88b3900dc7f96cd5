//! A locked key, owned. Most keys are short, and are then stored in line: locking one allocates
//! nothing.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// Maximum length of a key that is stored in line, in bytes.
const SHORT: usize = 22;

/// The bytes of a key; ordered like them.
#[derive(Clone, Debug)]
pub(crate) enum LockKey {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

impl From<&[u8]> for LockKey {
    #[inline]
    fn from(key: &[u8]) -> Self {
        if key.len() > SHORT {
            return Self::Long(key.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        Self::Short { len: key.len() as u8, bytes }
    }
}

impl Deref for LockKey {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(key) => key,
        }
    }
}

impl Borrow<[u8]> for LockKey {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for LockKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for LockKey {}

impl PartialOrd for LockKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_their_bytes_whatever_their_length() {
        let keys = [0, 1, SHORT - 1, SHORT, SHORT + 1, 100].map(|len| vec![7; len]);
        for (i, a) in keys.iter().enumerate() {
            let key = LockKey::from(a.as_slice());
            assert_eq!((&*key, matches!(key, LockKey::Short { .. })), (&**a, a.len() <= SHORT));
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(key.cmp(&b.as_slice().into()), i.cmp(&j));
            }
        }
    }
}
