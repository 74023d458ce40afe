//! A node of a cluster that does not reply.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate::limit::{Key, Policy};
use tidegate::store::{Redis, RedisSpec, StoreError};

use super::{bucket, charge, run, spec};
use crate::support::{Cluster, eventually_async, patience};

/// A stalled node costs one deadline: further requests for it fail at once, without a charge, until it replies. The other nodes
/// go on, also for requests that were sent together with those.
#[test]
fn a_stalled_node_delays_no_request_after_one_deadline() {
    let cluster = Cluster::start();
    let on = |master: usize| {
        let is_there = |key: &u8| cluster.locate(&format!("{{{}}}", Key([*key; 16]))).0 == master;
        (0..u8::MAX).filter(is_there).take(2).collect::<Vec<u8>>()
    };
    let (stalled, other) = (on(0), on(1));
    let policies = Arc::<[Policy]>::from(vec![bucket("a", 50)]);
    // Long enough for a call on a busy machine.
    let spec = RedisSpec { timeout: Duration::from_secs(1), ..spec(&cluster.url()) };
    run(async {
        let redis = Redis::connect(&spec);
        redis.wait_connected(patience()).await.unwrap();
        let take = async |key: u8| redis.take(&policies, &[charge(0, key)]).await;
        for key in [stalled[0], other[0]] {
            eventually_async("the node knows the script", async || take(key).await.is_ok()).await;
        }
        cluster.masters[0].pause();
        let (first, second) = tokio::join!(take(stalled[0]), take(other[0]));
        assert!(matches!(first, Err(StoreError::Deadline)), "{first:?}");
        assert!(second.is_ok(), "{second:?}");
        // The deadline of the request and that of the call are the same: either may be noticed first.
        eventually_async("requests for the node fail at once", async || {
            matches!(take(stalled[0]).now_or_never(), Some(Err(StoreError::Unsent)))
        })
        .await;
        for key in &stalled {
            let decided = take(*key).now_or_never();
            assert!(matches!(decided, Some(Err(StoreError::Unsent))), "{decided:?}");
        }
        cluster.masters[0].resume();
        let mut remaining = None;
        eventually_async("the node decides again", async || {
            remaining = take(stalled[1]).await.ok().map(|decisions| decisions[0].remaining);
            remaining.is_some()
        })
        .await;
        assert!(remaining.is_some_and(|remaining| remaining < 50));
        assert!(take(other[1]).await.is_ok());
    });
}
