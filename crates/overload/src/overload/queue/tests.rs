//! The order of the queue, its bounds and its timeouts.

use super::*;

const MS: u64 = 1000;

fn queue(most: usize) -> Queue<u32> {
    Queue::new(most, Micros(500 * MS), 0.05)
}

fn of(class: Class, key: u64) -> Arrival {
    Arrival { class, key }
}

fn push(queue: &mut Queue<u32>, class: Class, key: u64, item: u32) -> Ticket {
    match queue.push(of(class, key), item, Timestamp(0)) {
        Pushed::Queued(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn take(queue: &mut Queue<u32>) -> Option<u32> {
    let class = queue.next_class(|_| true)?;
    queue.pop(class)
}

#[test]
fn higher_classes_are_served_first() {
    let mut queue = queue(10);
    push(&mut queue, Class::Low, 1, 1);
    push(&mut queue, Class::Normal, 1, 2);
    push(&mut queue, Class::Critical, 1, 3);
    push(&mut queue, Class::Normal, 1, 4);
    let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue)).collect();
    assert_eq!(order, [3, 2, 4, 1]);
}

#[test]
fn lower_classes_get_the_floor() {
    let mut queue = queue(1000);
    for item in 0..200 {
        push(&mut queue, Class::Critical, 1, item);
        push(&mut queue, Class::Normal, 1, 1000 + item);
    }
    let served: Vec<u32> = (0..200).filter_map(|_| take(&mut queue)).collect();
    let normal = served.iter().filter(|item| **item >= 1000).count();
    assert!((9..=10).contains(&normal), "{normal}");
}

#[test]
fn keys_take_turns() {
    let mut queue = queue(100);
    for item in 0..6 {
        push(&mut queue, Class::Normal, 1, item);
    }
    push(&mut queue, Class::Normal, 2, 20);
    push(&mut queue, Class::Normal, 3, 30);
    let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue)).collect();
    assert_eq!(order, [0, 20, 30, 1, 2, 3, 4, 5]);
}

#[test]
fn a_key_that_comes_back_gets_no_extra_turns() {
    let mut queue = queue(100);
    for item in 0..4 {
        push(&mut queue, Class::Normal, 1, item);
    }
    push(&mut queue, Class::Normal, 2, 20);
    let mut order = vec![take(&mut queue), take(&mut queue)];
    // The other key asks again each time as soon as it was served.
    push(&mut queue, Class::Normal, 2, 21);
    order.extend([take(&mut queue), take(&mut queue)]);
    push(&mut queue, Class::Normal, 2, 22);
    order.extend([take(&mut queue), take(&mut queue)]);
    let order: Vec<u32> = order.into_iter().flatten().collect();
    assert_eq!(order, [0, 20, 1, 21, 2, 22]);
}

#[test]
fn keys_that_come_for_the_first_time_do_not_starve_others() {
    let mut queue = queue(100);
    for item in 0..10 {
        push(&mut queue, Class::Normal, 1, item);
    }
    let mut served = Vec::new();
    for key in 100..150_u32 {
        push(&mut queue, Class::Normal, key.into(), key);
        if key >= 105 {
            served.extend(take(&mut queue));
        }
    }
    let old = served.iter().filter(|item| **item < 10).count();
    assert!((4..=10).contains(&old), "{served:?}");
}

#[test]
fn a_full_queue_takes_a_higher_class_in_place_of_the_newest_of_the_lowest_and_heaviest() {
    let mut queue = queue(6);
    for item in 0..2 {
        push(&mut queue, Class::Low, 1, item);
    }
    push(&mut queue, Class::Low, 2, 10);
    for item in 20..23 {
        push(&mut queue, Class::Normal, 3, item);
    }
    match queue.push(of(Class::Critical, 4), 30, Timestamp(0)) {
        Pushed::Displaced(_, Class::Low, 1) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(queue.len(), 6);
    assert!(queue.is_full_for(of(Class::Low, 5)));
    assert!(matches!(queue.push(of(Class::Low, 5), 31, Timestamp(0)), Pushed::Full(31)));
}

#[test]
fn a_class_holds_half_of_the_queue() {
    let mut queue = queue(8);
    for item in 0..4 {
        push(&mut queue, Class::Critical, 1, item);
    }
    assert!(queue.is_full_for(of(Class::Critical, 1)));
    assert!(!queue.is_full_for(of(Class::Low, 1)));
    // A key without requests takes the place of the heaviest one's newest.
    match queue.push(of(Class::Critical, 2), 9, Timestamp(0)) {
        Pushed::Displaced(_, Class::Critical, 3) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_wait_for_the_timeout_or_50_ms_while_the_queue_stands() {
    let mut queue = queue(10);
    push(&mut queue, Class::Normal, 1, 1);
    assert_eq!(queue.deadline(), Some(Timestamp(100 * MS)));
    assert!(queue.pop_expired(Timestamp(99 * MS)).is_none());
    let late = of(Class::Normal, 1);
    assert!(matches!(queue.push(late, 2, Timestamp(90 * MS)), Pushed::Queued(_)));
    assert_eq!(queue.pop_expired(Timestamp(100 * MS)), Some((Class::Normal, 1)));
    assert!(queue.pop_expired(Timestamp(139 * MS)).is_none());
    assert_eq!(queue.deadline(), Some(Timestamp(140 * MS)));
    assert_eq!(queue.pop_expired(Timestamp(140 * MS)), Some((Class::Normal, 2)));
    assert!(queue.is_empty());
    // It stands no longer.
    assert!(matches!(queue.push(late, 3, Timestamp(200 * MS)), Pushed::Queued(_)));
    assert_eq!(queue.deadline(), Some(Timestamp(300 * MS)));
}

#[test]
fn a_short_timeout_holds() {
    let mut queue = Queue::new(10, Micros(20 * MS), 0.05);
    push(&mut queue, Class::Normal, 1, 1);
    assert_eq!(queue.deadline(), Some(Timestamp(20 * MS)));
    assert!(queue.pop_expired(Timestamp(20 * MS)).is_some());
}

#[test]
fn a_request_that_leaves_is_removed_once() {
    let mut queue = queue(10);
    let first = push(&mut queue, Class::Normal, 1, 1);
    let second = push(&mut queue, Class::Normal, 1, 2);
    push(&mut queue, Class::Normal, 1, 3);
    assert_eq!(queue.remove(second), Some(2));
    assert_eq!(queue.remove(second), None);
    assert_eq!(queue.remove(first), Some(1));
    assert_eq!(take(&mut queue), Some(3));
    assert!(queue.is_empty() && take(&mut queue).is_none() && queue.deadline().is_none());
}

#[test]
fn a_class_without_room_is_passed_over() {
    let mut queue = queue(10);
    push(&mut queue, Class::Critical, 1, 1);
    push(&mut queue, Class::Normal, 1, 2);
    assert_eq!(queue.next_class(|class| class != Class::Critical), Some(Class::Normal));
    assert_eq!(queue.next_class(|_| false), None);
}

#[test]
fn many_keys_leave_nothing_behind() {
    let mut queue = queue(4);
    for key in 0..10_000_u32 {
        push(&mut queue, Class::Normal, key.into(), key);
        assert_eq!(take(&mut queue), Some(key));
    }
    assert!(queue.classes[Class::Normal.index()].remembered() <= 64);
}
