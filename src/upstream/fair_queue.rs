//! A queue in which client addresses take turns.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Items of several client addresses: the addresses take turns, and the items of one leave in the order in which they
/// came.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// The next turn is that of the first; none of these is empty.
    clients: VecDeque<(IpAddr, VecDeque<T>)>,
    length: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { clients: VecDeque::new(), length: 0 }
    }
}

impl<T> FairQueue<T> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds an item behind those of the same address.
    pub fn push(&mut self, client: IpAddr, item: T) {
        self.length += 1;
        match self.clients.iter_mut().find(|(other, _)| *other == client) {
            Some((_, items)) => items.push_back(item),
            None => self.clients.push_back((client, VecDeque::from([item]))),
        }
    }

    /// The item whose turn it is.
    pub fn front(&self) -> Option<&T> {
        self.clients.front().and_then(|(_, items)| items.front())
    }

    /// Takes out the item whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let (client, mut items) = self.clients.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            self.clients.push_back((client, items));
        }
        self.length -= 1;
        item
    }

    /// Takes out the newest item of the address that has the most, if that has at least two more than `client`.
    pub fn displace(&mut self, client: IpAddr) -> Option<T> {
        let count = |wanted: IpAddr| {
            self.clients.iter().find(|(other, _)| *other == wanted).map_or(0, |(_, items)| items.len())
        };
        let least = count(client) + 2;
        let (_, items) = self.clients.iter_mut().max_by_key(|(_, items)| items.len())?;
        if items.len() < least {
            return None;
        }
        self.length -= 1;
        items.pop_back()
    }

    /// Keeps the items for which this holds.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        for (_, items) in &mut self.clients {
            items.retain(&mut keeps);
        }
        self.clients.retain(|(_, items)| !items.is_empty());
        self.length = self.clients.iter().map(|(_, items)| items.len()).sum();
    }

    /// Whether there is an item of another address.
    pub fn has_others(&self, client: IpAddr) -> bool {
        self.clients.iter().any(|(other, _)| *other != client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    fn turns(items: &[(u8, char)]) -> FairQueue<char> {
        let mut turns = FairQueue::default();
        for (number, item) in items {
            turns.push(client(*number), *item);
        }
        turns
    }

    fn all(turns: &mut FairQueue<char>) -> String {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn addresses_take_turns_and_each_keeps_its_order() {
        let mut turns = turns(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x'), (1, 'd'), (3, 'y'), (2, 'z')]);
        assert_eq!((turns.len(), turns.front()), (7, Some(&'a')));
        assert_eq!(turns.pop(), Some('a'));
        // One that comes anew has its turn after those that wait.
        turns.push(client(4), 'n');
        assert_eq!(all(&mut turns), "xybnzcd");
        assert!(turns.is_empty() && turns.front().is_none());
    }

    #[test]
    fn the_address_with_the_most_gives_way() {
        let mut turns = turns(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x')]);
        assert_eq!(turns.displace(client(1)), None);
        assert_eq!(turns.displace(client(2)), Some('c'));
        assert_eq!(turns.displace(client(2)), None);
        assert_eq!(turns.displace(client(3)), Some('b'));
        assert_eq!(turns.displace(client(3)), None);
        assert_eq!((turns.len(), all(&mut turns).as_str()), (2, "ax"));
    }

    #[test]
    fn those_that_leave_are_passed_over() {
        let mut turns = turns(&[(1, 'a'), (2, 'x'), (1, 'b')]);
        assert!(turns.has_others(client(1)) && turns.has_others(client(3)));
        turns.retain(|item| *item != 'x');
        assert!(!turns.has_others(client(1)) && turns.len() == 2);
        assert_eq!(all(&mut turns), "ab");
    }
}
