//! The nodes of a Redis Cluster, and their redirections.
//!
//! fred knows which node has which slot. What it does after a redirection is switched off: it would send a command
//! again that may have been run, and after ASK to the wrong node. MOVED, ASK and TRYAGAIN prove that nothing was
//! run, so after these, and only these, a command is sent again: after MOVED and ASK at once and a few times, after TRYAGAIN
//! with growing pauses until the deadline, since it fails until the migration ends.

use std::pin::Pin;
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, ClusterInterface};
use fred::types::config::{Options, Server};
use fred::types::{ClusterHash, CustomCommand, Value};
use tokio::time::Instant;

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

/// Sends a command, follows its redirections, and repeats it until `deadline` while the slot of its keys is being moved. Its
/// first key is `args[2]`.
pub(super) async fn send(
    client: &Client,
    command: &'static str,
    args: &[Value],
    options: &Options,
    deadline: Instant,
) -> Result<Value, Error> {
    let custom = custom(command);
    // fred ignores what a custom command declares of its keys.
    let options = &Options { cluster_hash: Some(ClusterHash::Offset(2)), ..options.clone() };
    let reply = client.with_options(options).custom(custom.clone(), args.to_vec()).await;
    if reply.as_ref().is_err_and(may_be_retried) {
        let call = Call { client, command: custom, args, options };
        let again: Again<'_> = Box::pin(send_again(call, reply, deadline));
        return again.await;
    }
    reply
}

/// Boxed, since it is rarely needed, and every request would carry its size in its future.
type Again<'a> = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send + 'a>>;

/// A command that is sent again.
struct Call<'a> {
    client: &'a Client,
    command: CustomCommand,
    args: &'a [Value],
    options: &'a Options,
}

async fn send_again(
    call: Call<'_>,
    mut reply: Result<Value, Error>,
    deadline: Instant,
) -> Result<Value, Error> {
    let Call { client, command, args, options } = call;
    let (mut redirections, mut pause) = (0, FIRST_PAUSE);
    loop {
        let Err(error) = &reply else { return reply };
        let mut node = None;
        if is_redirected(error) {
            redirections += 1;
            if redirections > MAX_REDIRECTIONS {
                return reply;
            }
            // fred has refreshed its map of slots before it returned this, so the first attempt may succeed now.
            if redirections > 1 {
                node = importer(client, args, options).await?;
            }
        } else if is_try_again(error) {
            let left = deadline.saturating_duration_since(monotonic());
            if left <= 2 * MARGIN {
                return reply;
            }
            // The last pauses become shorter, so that the last attempt is close to the deadline.
            tokio::time::sleep(pause.min(left / 2)).await;
            pause = MAX_PAUSE.min(pause * 2);
            // The owner may redirect to the importer again.
            redirections = 1;
        } else {
            return reply;
        }
        reply = match node {
            Some(node) => send_asking(client, node, &command, args, options).await,
            None => client.with_options(options).custom(command.clone(), args.to_vec()).await,
        };
    }
}

/// Whether the command was not run, and may succeed on another node or a moment later.
fn may_be_retried(error: &Error) -> bool {
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

/// The node that the slot of these arguments is being migrated to, if it is.
async fn importer(client: &Client, args: &[Value], options: &Options) -> Result<Option<Server>, Error> {
    let slot = args.get(2).and_then(Value::as_bytes).map_or(0, fred::util::redis_keyslot);
    let Some(state) = client.cached_cluster_state() else { return Ok(None) };
    let Some(owner) = state.get_server(slot).cloned() else { return Ok(None) };
    let options = Options { cluster_node: Some(owner), ..options.clone() };
    let known: String = client.with_options(&options).custom(custom("CLUSTER"), vec!["NODES"]).await?;
    let address = importing(&known, slot);
    // fred has connections only to nodes that have slots, so the first migration to a new node must be waited for.
    let address = |node: &Server| Some((&*node.host, node.port)) == address;
    Ok(state.unique_primary_nodes().into_iter().find(address))
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

/// Sends a command to the node that a slot is being migrated to, after ASKING. fred's queue keeps the two commands
/// adjacent.
async fn send_asking(
    client: &Client,
    node: Server,
    command: &CustomCommand,
    args: &[Value],
    options: &Options,
) -> Result<Value, Error> {
    let node = client.with_options(&Options { cluster_node: Some(node), ..options.clone() });
    let asking = node.custom::<Value, Value>(custom("ASKING"), Vec::new());
    let (_, reply) = tokio::join!(biased; asking, node.custom(command.clone(), args.to_vec()));
    reply
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
