//! Memory pages of the process.

use rustix::thread::disable_transparent_huge_pages;

/// Disables transparent huge pages. Most of each 2 MiB page would be unused: they double the memory of an idle process and
/// of idle connections, without a measurable gain in speed.
pub(super) fn disable_huge_pages() {
    // Old kernels do not support this; then the process only uses more memory.
    let _ = disable_transparent_huge_pages(true);
}
