//! The priority of a route, and the policies of limits that reserve slots for classes.

use http::header::HeaderName;

use crate::limit::PolicyId;
use crate::overload::Class;

/// The priority of a route's requests.
#[derive(Clone, Debug, Default)]
pub struct Priority {
    /// Their class.
    pub class: Class,
    /// The header in which trusted proxies name another class.
    pub header: Option<HeaderName>,
}

/// The policies of a limit that reserves slots for classes: those of lower classes have the same counts as the limit, a tier or
/// an override, and fewer usable slots.
#[derive(Clone, Copy, Debug)]
pub struct ClassPolicies {
    /// The first tier or override of the limit, if it has one.
    pub variants: PolicyId,
    /// The first policy of a class: those of the limit itself come first, and then those of each tier and override.
    pub first: PolicyId,
    /// For how many of the classes above each class slots are reserved, by [`Class::index`].
    pub reserving: [u32; Class::COUNT],
}

impl ClassPolicies {
    /// The policy of `limit`, or of its tier or override, for requests of a class.
    #[must_use]
    pub fn get(&self, limit: PolicyId, policy: PolicyId, class: Class) -> PolicyId {
        let reserving = self.reserving[class.index()];
        let Some(place) = reserving.checked_sub(1) else { return policy };
        let owner = if policy == limit { 0 } else { policy.0 - self.variants.0 + 1 };
        PolicyId(self.first.0 + owner * self.reserving[Class::Low.index()] + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_a_policy_for_each_class_that_leaves_slots_to_others() {
        // Limit 1 has the variants 4 and 5, and reserves slots for `critical` and `normal`.
        let (variants, first) = (PolicyId(4), PolicyId(6));
        let policies = ClassPolicies { variants, first, reserving: [0, 1, 1, 2] };
        let of = |policy: u32| Class::ALL.map(|class| policies.get(PolicyId(1), PolicyId(policy), class).0);
        assert_eq!([of(1), of(4), of(5)], [[1, 6, 6, 7], [4, 8, 8, 9], [5, 10, 10, 11]]);
    }
}
