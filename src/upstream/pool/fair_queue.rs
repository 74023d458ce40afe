//! A queue in which client addresses take turns.

use std::collections::VecDeque;
use std::net::IpAddr;

/// A queue of items of several client addresses: round robin over the addresses, first in first out for each of them.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    /// The next item is the first of the first address; no address is without items.
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

    /// Adds an item after those of the same address.
    pub fn push(&mut self, client: IpAddr, item: T) {
        self.length += 1;
        match self.clients.iter_mut().find(|(other, _)| *other == client) {
            Some((_, items)) => items.push_back(item),
            None => self.clients.push_back((client, VecDeque::from([item]))),
        }
    }

    /// The next item.
    pub fn front(&self) -> Option<&T> {
        self.clients.front().and_then(|(_, items)| items.front())
    }

    /// Removes and returns the next item.
    pub fn pop(&mut self) -> Option<T> {
        let (client, mut items) = self.clients.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            // Behind the other addresses, so that each has one item in a round.
            self.clients.push_back((client, items));
        }
        self.length -= 1;
        item
    }

    /// Removes and returns the newest item of the address with the most items, if that has at least two more than
    /// `client`.
    pub fn displace(&mut self, client: IpAddr) -> Option<T> {
        let count = |wanted: IpAddr| {
            self.clients.iter().find(|(other, _)| *other == wanted).map_or(0, |(_, items)| items.len())
        };
        // With only one more, the new item would make `client` the address with the most.
        let least = count(client) + 2;
        let (_, items) = self.clients.iter_mut().max_by_key(|(_, items)| items.len())?;
        if items.len() < least {
            return None;
        }
        self.length -= 1;
        items.pop_back()
    }

    /// Makes the items of this address the next ones.
    pub fn bring_forward(&mut self, client: IpAddr) {
        let index = self.clients.iter().position(|(other, _)| *other == client);
        if let Some(entry) = index.and_then(|index| self.clients.remove(index)) {
            self.clients.push_front(entry);
        }
    }

    /// Removes the items for which `keeps` is false.
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

    fn queue(items: &[(u8, char)]) -> FairQueue<char> {
        let mut queue = FairQueue::default();
        for (number, item) in items {
            queue.push(client(*number), *item);
        }
        queue
    }

    fn drain(queue: &mut FairQueue<char>) -> String {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn addresses_take_turns_and_each_keeps_its_order() {
        let mut queue = queue(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x'), (1, 'd'), (3, 'y'), (2, 'z')]);
        assert_eq!((queue.len(), queue.front()), (7, Some(&'a')));
        assert_eq!(queue.pop(), Some('a'));
        // A new address is last in the round.
        queue.push(client(4), 'n');
        assert_eq!(drain(&mut queue), "xybnzcd");
        assert!(queue.is_empty() && queue.front().is_none());
    }

    #[test]
    fn the_address_with_the_most_items_is_displaced() {
        let mut queue = queue(&[(1, 'a'), (1, 'b'), (1, 'c'), (2, 'x')]);
        assert_eq!(queue.displace(client(1)), None);
        assert_eq!(queue.displace(client(2)), Some('c'));
        assert_eq!(queue.displace(client(2)), None);
        assert_eq!(queue.displace(client(3)), Some('b'));
        assert_eq!(queue.displace(client(3)), None);
        assert_eq!((queue.len(), drain(&mut queue).as_str()), (2, "ax"));
    }

    #[test]
    fn an_address_can_be_brought_forward() {
        let mut queue = queue(&[(1, 'a'), (1, 'b'), (2, 'x'), (3, 'y')]);
        queue.bring_forward(client(3));
        queue.bring_forward(client(4));
        assert_eq!(drain(&mut queue), "yaxb");
    }

    #[test]
    fn removed_items_are_skipped() {
        let mut queue = queue(&[(1, 'a'), (2, 'x'), (1, 'b')]);
        assert!(queue.has_others(client(1)) && queue.has_others(client(3)));
        queue.retain(|item| *item != 'x');
        assert!(!queue.has_others(client(1)) && queue.len() == 2);
        assert_eq!(drain(&mut queue), "ab");
    }
}
