//! Pages of a list: their size, and where the next one starts (behaviour 1.5).

use prost::Message;

use crate::refusal::Refusal;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;
/// Clients refuse messages above 4 MiB; what is left covers the token and the framing.
const MAX_BYTES: usize = 3 * 1024 * 1024 + 512 * 1024;

/// How many items a page may have: the client's wish within our bounds.
pub(crate) fn size(wished: i32) -> Result<usize, Refusal> {
    match usize::try_from(wished) {
        Ok(0) => Ok(DEFAULT_SIZE),
        Ok(size) => Ok(size.min(MAX_SIZE)),
        Err(_) => Err(Refusal::field("page_size", "must not be negative")),
    }
}

/// What of `items` fits on one page, and whether more follow. `items` holds one more than `size` if there are more.
/// At least one item is kept, so that paging always moves on.
pub(crate) fn cut<T>(mut items: Vec<T>, size: usize, encoded: impl Fn(&T) -> usize) -> (Vec<T>, bool) {
    let mut bytes = 0;
    let fitting = items.iter().take(size).take_while(|item| {
        bytes += encoded(item) + prost::length_delimiter_len(encoded(item)) + 1;
        bytes <= MAX_BYTES
    });
    let kept = fitting.count().max(1).min(items.len());
    let more = items.len() > kept;
    items.truncate(kept);
    (items, more)
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
        fn a_page_is_a_prefix_within_the_limits_and_never_empty(
            sizes in proptest::collection::vec(0usize..2_000_000, 1..40),
            wished in 1usize..30,
        ) {
            let (page, more) = cut(sizes.clone(), wished, |size| *size);
            prop_assert!(!page.is_empty() && page.len() <= wished);
            prop_assert_eq!(&sizes[..page.len()], &page[..]);
            prop_assert_eq!(more, page.len() < sizes.len());
            prop_assert!(page.len() == 1 || page.iter().sum::<usize>() <= MAX_BYTES);
        }
    }
}
