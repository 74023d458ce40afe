//! `reserved_share`: the slots of a concurrency limit that only requests of higher classes may take. Lower classes have policies of
//! their own, which count in the same states.

use super::limit_keys::{LimitKeys, ReservedShareKeys};
use super::variants::{Base, Variant, Variants};
use crate::config::item::Item;
use crate::config::quota::written;
use crate::config::report::Problem;
use crate::config::shares::check_shares;
use crate::config::table::Table;
use crate::gate::ClassPolicies;
use crate::limit::{MAX_IN_FLIGHT, Policy, Quota, ReservedShare, Slots};
use crate::overload::Class;

/// The classes that shares are reserved for: all but the lowest.
const RESERVING: [Class; Slots::MAX_RESERVED] = [Class::Critical, Class::High, Class::Normal];

/// `reserved_share` as the file has it.
struct ReadReserved<'a> {
    /// The classes with a share, the highest one first.
    shares: Vec<(Class, f64)>,
    item: Item<'a>,
}

/// Reads `reserved_share` of a limit with this quota, and adds the policies of lower classes to the variants.
pub(super) fn classes(
    table: &Table<'_, LimitKeys>,
    variants: &mut Variants,
    base: &Base<'_, '_>,
    quota: Option<&Quota>,
) -> Option<Box<ClassPolicies>> {
    let item = table.reserved_share().given()?;
    let shares = shares(item);
    if let Some(ban) = table.ban().given() {
        let title = "denials of lower classes would ban the key for all classes";
        let problem = item.error(title).related(ban.span(), "by this ban");
        item.reader.report(problem.help("leave `ban` or `reserved_share` out"));
        variants.is_valid = false;
    }
    let Some(shares) = shares else {
        variants.is_valid = false;
        return None;
    };
    let read = ReadReserved { shares, item };
    if read.shares.is_empty() { None } else { read.add_to(variants, base, quota?) }
}

fn shares(item: Item<'_>) -> Option<Vec<(Class, f64)>> {
    let table = Table::<ReservedShareKeys>::of_or(item, "`reserved_share`", "such as { critical = 0.2 }")?;
    let shares = [table.critical().read(), table.high().read(), table.normal().read()];
    table.close();
    let [critical, high, normal] = shares;
    let shares = [critical?, high?, normal?];
    check_shares(item, &shares)?;
    let given: Vec<(Class, f64)> =
        RESERVING.into_iter().zip(shares).filter(|(_, share)| *share > 0.0).collect();
    if given.is_empty() {
        let problem = Problem::warning(item.span(), "`reserved_share` reserves nothing");
        item.reader.report(problem.help("such as { critical = 0.2 }"));
    }
    Some(given)
}

impl ReadReserved<'_> {
    /// Adds the policies of lower classes, of the limit with this quota and of each of its variants.
    fn add_to(
        &self,
        variants: &mut Variants,
        base: &Base<'_, '_>,
        quota: &Quota,
    ) -> Option<Box<ClassPolicies>> {
        let numbers = written(base.algorithm?, base.numbers?);
        let (label, span) = ("the limit".to_owned(), self.item.span());
        let own = Variant { policy: Policy::new(base.name, quota.clone()), numbers, label, span };
        let (first, classes) = (variants.id(variants.all.len()), Class::ALL.map(|class| self.above(class)));
        let classes = ClassPolicies { variants: variants.id(0), first, reserving: classes };
        let owners = || std::iter::once(&own).chain(&variants.all);
        let without_slots = owners().filter(|owner| !self.has_slots(owner, &own)).count();
        let below: Vec<Variant> = owners().flat_map(|owner| self.of_classes(owner)).collect();
        variants.is_valid &= without_slots == 0;
        variants.all.extend(below);
        Some(Box::new(classes))
    }

    /// For how many of the classes above this one slots are reserved.
    fn above(&self, class: Class) -> u32 {
        self.shares.iter().map(|(other, _)| u32::from(*other < class)).sum()
    }

    /// The policies of a limit, a tier or an override for lower classes: the first one leaves the slots of the highest class free.
    fn of_classes(&self, owner: &Variant) -> Vec<Variant> {
        let policy = |count: usize| {
            let mut shares = [ReservedShare::default(); Slots::MAX_RESERVED];
            for (share, (_, given)) in shares.iter_mut().zip(&self.shares[..count]) {
                *share = ReservedShare::new(*given);
            }
            let class = Class::ALL.into_iter().find(|class| self.above(*class) as usize == count);
            Variant {
                policy: owner.policy.reserving(shares),
                numbers: owner.numbers.clone(),
                label: format!("the class `{}` of {}", class.unwrap_or(Class::Low), owner.label),
                span: owner.span.clone(),
            }
        };
        (1..=self.shares.len()).map(policy).collect()
    }

    /// Whether each share is a slot at least; reports one that is not.
    fn has_slots(&self, owner: &Variant, own: &Variant) -> bool {
        let limit = owner.policy.quota.limit();
        let is_none = |(_, share): &&(Class, f64)| ReservedShare::new(*share).of(limit) == 0;
        let Some((class, share)) = self.shares.iter().find(is_none) else { return true };
        let title = format!("the share of `{class}` reserves no slot: {share} of {limit} is less than 1");
        let problem = if owner.span == own.span {
            self.item.error(title)
        } else {
            let title = format!("{title}, for {}", owner.label);
            Problem::error(owner.span.clone(), title).related(self.item.span(), "the shares")
        };
        self.item.reader.report(problem.help(cure(*class, *share, limit)));
        false
    }
}

/// How to reserve a slot.
fn cure(class: Class, share: f64, limit: u64) -> String {
    let is_a_slot = |share: f64, limit| ReservedShare::new(share).of(limit) > 0;
    let limits = (limit..=MAX_IN_FLIGHT).find(|limit| is_a_slot(share, *limit));
    // In thousandths, or in ten-thousandths for many slots.
    let least = [1_000_u32, 10_000].into_iter().find_map(|parts| {
        let part = parts.div_ceil(u32::try_from(limit).ok()?);
        let share = f64::from(part) / f64::from(parts);
        is_a_slot(share, limit).then_some(share)
    });
    let raise = limits.map(|limit| format!("raise `max_in_flight` to {limit}"));
    let share = least.filter(|least| *least <= 0.5).map(|least| format!("write {class} = {least}"));
    let cures: Vec<String> = [share, raise].into_iter().flatten().collect();
    cures.join(", or ")
}
