//! Who may use a Unix socket, for messages to users who may not.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The permissions of a group to write to a socket, and to enter a directory.
const GROUP_WRITES: u32 = 0o020;
const GROUP_ENTERS: u32 = 0o010;

/// Who may use a socket that this user may not use, and how to become one of them. None if the file system does not tell.
pub(super) fn cure(socket: &Path) -> Option<String> {
    // The metadata of the socket is hidden if one of its directories can't be entered, and that of this directory is not.
    let (place, metadata) = socket.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)))?;
    let [user, group] = [("/etc/passwd", metadata.uid()), ("/etc/group", metadata.gid())].map(name);
    let is_socket = place == socket;
    let may_group = metadata.mode() & if is_socket { GROUP_WRITES } else { GROUP_ENTERS } != 0;
    let place = place.display();
    if may_group {
        return Some(format!(
            "{place} is for the user {user} and the group {group}: run the command with sudo, or join the group with sudo \
             usermod -aG {group} $USER and log in again"
        ));
    }
    let mode = if is_socket { "; mode = \"0660\" in [admin] gives its group access" } else { "" };
    Some(format!("{place} is for the user {user} alone: run the command with sudo{mode}"))
}

/// The name of a user or a group, or its number if the file has none.
fn name((file, id): (&str, u32)) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let has_id = |line: &&str| line.split(':').nth(2).and_then(|number| number.parse().ok()) == Some(id);
    let name = text.lines().find(has_id).and_then(|line| line.split(':').next());
    name.map_or_else(|| id.to_string(), str::to_owned)
}
