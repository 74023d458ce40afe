//! The nodes of a Redis Cluster, and their redirections.
//!
//! fred knows which node has which slot. What it does after a redirection is switched off: it would send a command
//! again that may have been run, and after ASK to the wrong node. MOVED, ASK and TRYAGAIN prove that nothing was
//! run, so after these, and only these, a command is sent again: after MOVED and ASK at once and a few times, after TRYAGAIN
//! with growing pauses until the deadline, since it fails until the migration ends.
//!
//! In a cluster a call has one command for each hash slot, since all keys of a script must be in one slot. The commands of a
//! call are queued in fred together, which writes them at once. A lane assigns requests to servers by a copy of fred's map of
//! slots, which may be a second old; fred routes each command by its current map. A command that is redirected, or gets
//! TRYAGAIN because its slot is being moved, is sent again by a separate task: further requests for that slot wait for it, for
//! at most a quarter of the deadline, and others do not. One bound (`MAX_PENDING`) holds for all lanes together.

use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, ClusterInterface};
use fred::types::config::{Options, Server};
use fred::types::{ClusterHash, CustomCommand, Value};
use tokio::time::Instant;

use crate::limit::Key;
use crate::time::monotonic;

/// How often in a row a command may be redirected.
const MAX_REDIRECTIONS: usize = 5;
/// The first pause after TRYAGAIN; each further one is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause after TRYAGAIN.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// How long before the deadline a command is given up after TRYAGAIN, so that this error is returned in time: it proves that
/// nothing was charged, which a missed deadline does not.
const MARGIN: Duration = Duration::from_millis(5);

/// A command with keys of one slot, of which the first is `args[2]`.
pub(super) struct Command {
    client: Arc<Client>,
    name: &'static str,
    args: Vec<Value>,
    options: Options,
}

impl Command {
    pub fn new(client: Arc<Client>, name: &'static str, args: Vec<Value>, options: Options) -> Self {
        // fred ignores what a custom command declares of its keys.
        let options = Options { cluster_hash: Some(ClusterHash::Offset(2)), ..options };
        Self { client, name, args, options }
    }

    /// Gives it another name and first argument.
    pub fn rename(&mut self, name: &'static str, first: Value) {
        self.name = name;
        self.args[0] = first;
    }

    /// Sends it once.
    pub async fn send(&self) -> Result<Value, Error> {
        self.client.with_options(&self.options).custom(custom(self.name), self.args.clone()).await
    }

    /// Follows the redirections after `error`, and sends the command again until `deadline` while its slot is being moved.
    pub async fn send_again(&self, error: Error, deadline: Instant) -> Result<Value, Error> {
        let (mut redirections, mut pause) = (0, FIRST_PAUSE);
        let mut error = error;
        loop {
            let mut node = None;
            if is_redirected(&error) {
                redirections += 1;
                if redirections > MAX_REDIRECTIONS {
                    return Err(error);
                }
                // fred has refreshed its map of slots before it returned this, so the first attempt may succeed now.
                if redirections > 1 {
                    node = self.importer().await?;
                }
            } else if is_try_again(&error) {
                let left = deadline.saturating_duration_since(monotonic());
                if left <= 2 * MARGIN {
                    return Err(error);
                }
                // The last pauses become shorter, so that the last attempt is close to the deadline.
                tokio::time::sleep(pause.min(left / 2)).await;
                pause = MAX_PAUSE.min(pause * 2);
                // The owner may redirect to the importer again.
                redirections = 1;
            } else {
                return Err(error);
            }
            let reply = match node {
                Some(node) => self.send_asking(node).await,
                None => self.send().await,
            };
            match reply {
                Ok(value) => return Ok(value),
                Err(next) => error = next,
            }
        }
    }

    /// The node that its slot is being migrated to, if it is.
    async fn importer(&self) -> Result<Option<Server>, Error> {
        let slot = self.args.get(2).and_then(Value::as_bytes).map_or(0, fred::util::redis_keyslot);
        let Some(state) = self.client.cached_cluster_state() else { return Ok(None) };
        let Some(owner) = state.get_server(slot).cloned() else { return Ok(None) };
        let options = Options { cluster_node: Some(owner), ..self.options.clone() };
        let known: String =
            self.client.with_options(&options).custom(custom("CLUSTER"), vec!["NODES"]).await?;
        let address = importing(&known, slot);
        // fred has connections only to nodes that have slots, so the first migration to a new node must be waited for.
        let address = |node: &Server| Some((&*node.host, node.port)) == address;
        Ok(state.unique_primary_nodes().into_iter().find(address))
    }

    /// Sends it to the node that its slot is being migrated to, after ASKING. fred's queue keeps the two commands adjacent.
    async fn send_asking(&self, node: Server) -> Result<Value, Error> {
        let node = self.client.with_options(&Options { cluster_node: Some(node), ..self.options.clone() });
        let asking = node.custom::<Value, Value>(custom("ASKING"), Vec::new());
        let (_, reply) = tokio::join!(biased; asking, node.custom(custom(self.name), self.args.clone()));
        reply
    }
}

/// The hash slot of a key's tag.
pub(super) fn slot(key: Key) -> u16 {
    fred::util::redis_keyslot(&key.text())
}

/// Whether the command was not run, and may succeed on another node or a moment later.
pub(super) fn may_be_retried(error: &Error) -> bool {
    is_redirected(error) || is_try_again(error)
}

/// Whether a command was not run because some of its keys have been moved to another node, and some have not.
pub(super) fn is_try_again(error: &Error) -> bool {
    error.details().starts_with("TRYAGAIN")
}

fn custom(command: &'static str) -> CustomCommand {
    CustomCommand::new_static(command, ClusterHash::FirstKey, false)
}

/// The nodes that have slots; `[None]` of a Redis that is no cluster.
pub(super) fn nodes(client: &Client) -> Vec<Option<Server>> {
    match client.cached_cluster_state() {
        Some(state) => state.unique_primary_nodes().into_iter().map(Some).collect(),
        None => vec![None],
    }
}

/// Whether the reply was MOVED or ASK, for which fred has this text of its own.
fn is_redirected(error: &Error) -> bool {
    *error.kind() == ErrorKind::Routing && error.details() == "Too many redirections."
}

/// Reads from a node's CLUSTER NODES where it migrates a slot to.
fn importing(nodes: &str, slot: u16) -> Option<(&str, u16)> {
    let own =
        nodes.lines().find(|line| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself")))?;
    let going = format!("[{slot}->-");
    let id = own.split(' ').find_map(|word| word.strip_prefix(&going)?.strip_suffix(']'))?;
    let line = nodes.lines().find(|line| line.starts_with(id))?;
    // `host:port@bus,name`.
    let (address, _) = line.split(' ').nth(1)?.split_once('@')?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_importing_node_of_a_slot_is_read() {
        let nodes = "\
            aa 127.0.0.1:7000@17000 master - 0 1 2 connected 5461-10922\n\
            bb 127.0.0.1:7001@17001,name myself,master - 0 0 1 connected 0-5460 [93->-cc] [77-<-aa]\n\
            cc ::1:7002@17002,name master - 0 1 3 connected 10923-16383\n";
        assert_eq!(importing(nodes, 93), Some(("::1", 7002)));
        assert_eq!(importing(nodes, 77), None);
        assert_eq!(importing("", 93), None);
    }
}
