//! Pages of a list: their size, and where the next one starts (behaviour 1.5).

use prost::Message;

use crate::refusal::Refusal;

const DEFAULT_SIZE: u32 = 100;
const MAX_SIZE: u32 = 1000;
/// Clients refuse messages above 4 MiB; what is left covers the token and the framing.
const MAX_BYTES: usize = 3 * 1024 * 1024 + 512 * 1024;

/// How many items a page may have: the client's wish within our bounds.
pub(crate) fn size(wished: i32) -> Result<u32, Refusal> {
    match u32::try_from(wished) {
        Ok(0) => Ok(DEFAULT_SIZE),
        Ok(size) => Ok(size.min(MAX_SIZE)),
        Err(_) => Err(Refusal::field("page_size", "must not be negative")),
    }
}

/// What of `items` fits into one message, and whether some do not. At least one is kept, so that paging always moves on.
pub(crate) fn cut<T>(mut items: Vec<T>, encoded: impl Fn(&T) -> usize) -> (Vec<T>, bool) {
    let mut bytes = 0;
    let fitting = items.iter().take_while(|item| {
        bytes += encoded(item) + prost::length_delimiter_len(encoded(item)) + 1;
        bytes <= MAX_BYTES
    });
    let kept = fitting.count().max(1).min(items.len());
    let cut = items.len() > kept;
    items.truncate(kept);
    (items, cut)
}

/// The usual measure of an item.
pub(crate) fn encoded<M: Message>(message: &M) -> usize {
    message.encoded_len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wish_is_held_within_bounds() {
        assert_eq!(size(0).unwrap(), 100);
        assert_eq!(size(7).unwrap(), 7);
        assert_eq!(size(5000).unwrap(), 1000);
        assert!(size(-1).is_err());
    }

    proptest! {
        #[test]
        fn a_page_is_a_prefix_within_the_limit_and_never_empty(
            sizes in proptest::collection::vec(0usize..2_000_000, 1..40),
        ) {
            let (page, cut) = cut(sizes.clone(), |size| *size);
            prop_assert!(!page.is_empty());
            prop_assert_eq!(&sizes[..page.len()], &page[..]);
            prop_assert_eq!(cut, page.len() < sizes.len());
            prop_assert!(page.len() == 1 || page.iter().sum::<usize>() <= MAX_BYTES);
        }
    }
}
