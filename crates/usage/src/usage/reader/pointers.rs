//! JSON pointers (RFC 6901), compared with the path while a text is read.

/// Pointers, and how far each of them agrees with the present path.
#[derive(Debug)]
pub(super) struct Pointers {
    pointers: Box<[Pointer]>,
    /// The index of the present element for each level that a pointer has.
    indices: Box<[u64]>,
}

#[derive(Debug)]
struct Pointer {
    /// None of a text that is no pointer, which points at nothing.
    segments: Option<Box<[Segment]>>,
    /// How many of the segments agree with the path, from the outermost container on.
    matched: usize,
}

#[derive(Debug)]
struct Segment {
    name: Box<[u8]>,
    index: Option<u64>,
}

impl Pointers {
    pub(super) fn new(texts: &[&str]) -> Self {
        let pointers: Box<[Pointer]> = texts.iter().map(|text| Pointer::new(text)).collect();
        let levels = pointers.iter().map(|pointer| pointer.segments().len()).max().unwrap_or(0);
        Self { pointers, indices: vec![0; levels].into() }
    }

    /// The length of the longest name.
    pub(super) fn max_name(&self) -> usize {
        let names = self.pointers.iter().flat_map(Pointer::segments).map(|segment| segment.name.len());
        names.max().unwrap_or(0)
    }

    /// An array at this depth begins.
    pub(super) fn open_array(&mut self, depth: usize) {
        if let Some(index) = self.indices.get_mut(depth - 1) {
            *index = 0;
        }
    }

    /// The next element of the array at this depth begins.
    pub(super) fn element(&mut self, depth: usize) {
        let Some(next) = self.indices.get_mut(depth - 1) else { return };
        let index = *next;
        *next += 1;
        for pointer in &mut self.pointers {
            pointer.step(depth, |segment| segment.index == Some(index));
        }
    }

    /// The next member of the object at this depth has this name.
    pub(super) fn name(&mut self, depth: usize, name: Option<&[u8]>) {
        if depth > self.indices.len() {
            return;
        }
        for pointer in &mut self.pointers {
            pointer.step(depth, |segment| name == Some(&*segment.name));
        }
    }

    /// The pointers at a value in the container at this depth.
    pub(super) fn at(&self, depth: usize) -> impl Iterator<Item = usize> {
        let pointers = self.pointers.iter().enumerate();
        let here = pointers.filter(move |(_, pointer)| {
            pointer.segments.as_ref().is_some_and(|segments| segments.len() == depth)
                && pointer.matched == depth
        });
        here.map(|(place, _)| place)
    }
}

impl Pointer {
    fn new(text: &str) -> Self {
        let segments = if text.is_empty() {
            Some(Box::default())
        } else {
            text.strip_prefix('/').map(|rest| rest.split('/').map(Segment::new).collect())
        };
        Self { segments, matched: 0 }
    }

    fn segments(&self) -> &[Segment] {
        self.segments.as_deref().unwrap_or_default()
    }

    fn step(&mut self, depth: usize, agrees: impl Fn(&Segment) -> bool) {
        if self.matched >= depth - 1 {
            let is_match = self.segments().get(depth - 1).is_some_and(agrees);
            self.matched = if is_match { depth } else { depth - 1 };
        }
    }
}

impl Segment {
    fn new(text: &str) -> Self {
        let name = text.replace("~1", "/").replace("~0", "~");
        // RFC 6901 §4: an index has no leading zeros.
        let is_index =
            name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
        let index = if is_index { name.parse().ok() } else { None };
        Self { name: name.into_bytes().into(), index }
    }
}
