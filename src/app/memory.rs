//! How the kernel gives the process its memory.

use rustix::thread::disable_transparent_huge_pages;

/// Has the process get small pages only. Of 2 MiB that are taken at once for a first object of some size, most would be
/// left unused: twice the memory at rest and for idle connections, and no time won that could be measured.
pub(super) fn take_small_pages() {
    // An old kernel does not know it; then more memory is used, and nothing else.
    let _ = disable_transparent_huge_pages(true);
}
