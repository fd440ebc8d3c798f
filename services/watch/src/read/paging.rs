//! From a request's page fields to the store's, and from a page of rows to the token of the next.

use prost::Message as _;
use roadstead_proto::internal::ListCursor;
use roadstead_proto::page_token::InvalidPageToken;
use roadstead_store::read::{After, Listed, Page};
use uuid::Uuid;

use super::Call;
use crate::page;
use crate::refusal::Refusal;
use crate::selector;

/// One page of a list, as asked for.
pub(super) struct Asked<'a> {
    call: &'a Call<'a>,
    /// What the token is bound to beside method and caller's choice of page size.
    parameters: Vec<&'a str>,
    size: u32,
    cursor: Option<ListCursor>,
}

impl<'a> Call<'a> {
    /// Reads the page fields. A token counts only for the same method and `parameters`.
    pub(super) fn asked(
        &'a self,
        parameters: impl IntoIterator<Item = &'a str>,
        page_size: i32,
        page_token: &str,
    ) -> Result<Asked<'a>, Refusal> {
        let parameters: Vec<&str> = parameters.into_iter().collect();
        let size = page::size(page_size)?;
        let cursor = match page_token {
            "" => None,
            token => {
                let cursor = self.reads.page_tokens.open(self.method, &parameters, token)?;
                Some(ListCursor::decode(cursor.as_slice()).map_err(|_| InvalidPageToken)?)
            }
        };
        Ok(Asked { call: self, parameters, size, cursor })
    }
}

impl Asked<'_> {
    /// Most rows of the page.
    pub(super) fn most(&self) -> u32 {
        self.size
    }

    /// Where the page begins, if not at the start.
    pub(super) const fn cursor(&self) -> Option<&ListCursor> {
        self.cursor.as_ref()
    }

    /// The page of a list in order of creation.
    pub(super) fn page(&self, label_selector: &str) -> Result<Page, Refusal> {
        let after = match &self.cursor {
            None => After::default(),
            Some(ListCursor { created_ms, name, workspace, id, .. }) => After {
                created_at: After::at_ms(*created_ms),
                name: name.clone(),
                workspace: workspace.clone(),
                id: Uuid::try_parse(id).map_err(|_| InvalidPageToken)?,
            },
        };
        Ok(Page { labels: selector::parse(label_selector)?, after, most: self.most() })
    }

    /// What of the page fits into one message, and the token for what follows. `shown` makes an item's message, `cursor`
    /// says where one stands in the list.
    pub(super) fn cut<R, M: prost::Message>(
        &self,
        listed: Listed<R>,
        shown: impl Fn(&R) -> M,
        cursor: impl Fn(&R) -> ListCursor,
    ) -> (Vec<M>, String) {
        let Listed { items, more } = listed;
        let (messages, cut) = page::cut(items.iter().map(shown).collect(), page::encoded);
        let token = match messages.len().checked_sub(1).and_then(|last| items.get(last)) {
            Some(last) if more || cut => {
                let cursor = cursor(last).encode_to_vec();
                self.call.reads.page_tokens.issue(self.call.method, &self.parameters, &cursor)
            }
            _ => String::new(),
        };
        (messages, token)
    }
}

/// Where an item stands in a list in order of creation.
pub(super) fn created(at: std::time::SystemTime, name: &str, workspace: &str, id: Uuid) -> ListCursor {
    let after = After { created_at: at, ..After::default() };
    ListCursor {
        created_ms: after.created_ms(),
        name: name.to_owned(),
        workspace: workspace.to_owned(),
        id: id.to_string(),
        version: 0,
    }
}
