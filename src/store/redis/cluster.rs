//! The nodes of a Redis Cluster, and what they say when a key lies elsewhere.
//!
//! fred knows which node has which slot. What it does after a redirection is switched off: it would send a command
//! again that may have been run, and after ASK to the wrong node. MOVED, ASK and TRYAGAIN prove that nothing was
//! run, so after these, and only these, a command goes again: after MOVED and ASK at once and a few times, after TRYAGAIN
//! with growing pauses until the deadline, because only the end of the migration helps.

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
const REDIRECTIONS: usize = 5;
/// The first and the longest pause after TRYAGAIN; each is twice as long as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// How long before the deadline a command that got TRYAGAIN is given up, so that the error arrives in time: it proves that
/// nothing was charged, which a missed deadline does not.
const MARGIN: Duration = Duration::from_millis(5);

/// Sends a command, at most to those nodes that it is redirected to, and until `deadline` while the slot of its keys is being
/// moved. Its first key is `args[2]`.
pub(super) async fn send(
    client: &Client,
    command: &'static str,
    args: &[Value],
    options: &Options,
    deadline: Instant,
) -> Result<Value, Error> {
    let custom = custom(command);
    // fred does not look at what a custom command says of its keys.
    let options = &Options { cluster_hash: Some(ClusterHash::Offset(2)), ..options.clone() };
    let said = client.with_options(options).custom(custom.clone(), args.to_vec()).await;
    if said.as_ref().is_err_and(goes_again) {
        let call = Call { client, command: custom, args, options };
        let again: Again<'_> = Box::pin(send_again(call, said, deadline));
        return again.await;
    }
    said
}

/// What is seldom needed, and so not to make larger the future of every request.
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
    mut said: Result<Value, Error>,
    deadline: Instant,
) -> Result<Value, Error> {
    let Call { client, command, args, options } = call;
    let (mut redirections, mut pause) = (0, PAUSES.0);
    loop {
        let Err(error) = &said else { return said };
        let mut node = None;
        if is_redirected(error) {
            redirections += 1;
            if redirections > REDIRECTIONS {
                return said;
            }
            // fred has looked where the slots are before it said so; so the first time it may know better now.
            if redirections > 1 {
                node = importer(client, args, options).await?;
            }
        } else if is_try_again(error) {
            let left = deadline.saturating_duration_since(monotonic());
            if left <= 2 * MARGIN {
                return said;
            }
            // The last pauses become shorter, so that the last attempt is close to the deadline.
            tokio::time::sleep(pause.min(left / 2)).await;
            pause = PAUSES.1.min(pause * 2);
            // The owner may redirect to the importer again.
            redirections = 1;
        } else {
            return said;
        }
        said = match node {
            Some(node) => ask(client, node, &command, args, options).await,
            None => client.with_options(options).custom(command.clone(), args.to_vec()).await,
        };
    }
}

/// Whether a command was not run, and may be elsewhere or a moment later.
fn goes_again(error: &Error) -> bool {
    is_redirected(error) || is_try_again(error)
}

/// Whether a command was not run because some of its keys have been moved to another node, and some have not.
pub(super) fn is_try_again(error: &Error) -> bool {
    error.details().starts_with("TRYAGAIN")
}

fn custom(command: &'static str) -> CustomCommand {
    CustomCommand::new_static(command, ClusterHash::FirstKey, false)
}

/// The nodes that have slots; of a Redis that is no cluster one that has no name.
pub(super) fn nodes(client: &Client) -> Vec<Option<Server>> {
    match client.cached_cluster_state() {
        Some(state) => state.unique_primary_nodes().into_iter().map(Some).collect(),
        None => vec![None],
    }
}

/// Whether a command was answered by MOVED or ASK. fred has these words of its own for that, and no others.
fn is_redirected(error: &Error) -> bool {
    *error.kind() == ErrorKind::Routing && error.details() == "Too many redirections."
}

/// The node that the slot of these arguments is on its way to, if it is.
async fn importer(client: &Client, args: &[Value], options: &Options) -> Result<Option<Server>, Error> {
    let slot = args.get(2).and_then(Value::as_bytes).map_or(0, fred::util::redis_keyslot);
    let Some(state) = client.cached_cluster_state() else { return Ok(None) };
    let Some(owner) = state.get_server(slot).cloned() else { return Ok(None) };
    let options = Options { cluster_node: Some(owner), ..options.clone() };
    let known: String = client.with_options(&options).custom(custom("CLUSTER"), vec!["NODES"]).await?;
    let address = importing(&known, slot);
    // fred has connections to nodes that have slots. One that gets its first has to wait until it has it.
    let address = |node: &Server| Some((&*node.host, node.port)) == address;
    Ok(state.unique_primary_nodes().into_iter().find(address))
}

/// Where a slot goes to that the node which wrote this gives away.
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

/// Asks a node for a key that is on its way there. The two commands are put into fred's queue one right after the other,
/// and reach the node so.
async fn ask(
    client: &Client,
    node: Server,
    command: &CustomCommand,
    args: &[Value],
    options: &Options,
) -> Result<Value, Error> {
    let node = client.with_options(&Options { cluster_node: Some(node), ..options.clone() });
    let asking = node.custom::<Value, Value>(custom("ASKING"), Vec::new());
    let (_, said) = tokio::join!(biased; asking, node.custom(command.clone(), args.to_vec()));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_slot_goes_is_read() {
        let nodes = "\
            aa 127.0.0.1:7000@17000 master - 0 1 2 connected 5461-10922\n\
            bb 127.0.0.1:7001@17001,name myself,master - 0 0 1 connected 0-5460 [93->-cc] [77-<-aa]\n\
            cc ::1:7002@17002,name master - 0 1 3 connected 10923-16383\n";
        assert_eq!(importing(nodes, 93), Some(("::1", 7002)));
        assert_eq!(importing(nodes, 77), None);
        assert_eq!(importing("", 93), None);
    }
}
