//! What holds after every outage.

use roadstead_e2e::{Fleet, convergence, effect, effect::Mutation};
use roadstead_testkit::Stack;

/// Supervised sandboxes: two at each bridge.
pub(crate) const SANDBOXES: usize = 4;

/// Everything agrees, each mutation had the effect that was told, and no sandbox has left READY.
pub(crate) async fn assert_sound(stack: &Stack, fleet: &Fleet, mutations: &[Mutation]) {
    convergence::assert_converges(stack, fleet).await;
    let mut session = stack.session().await;
    effect::assert_sound(&mut session, fleet.workspace(), mutations).await;
    fleet.assert_never_unready(&mut session).await;
    fleet.assert_ordered();
}
