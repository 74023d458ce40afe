//! A rate-limit request that was checked: what is counted, and for how many hits.

use crate::gate::Descriptor;
use crate::limit::Rate;
use crate::time::Micros;

use super::messages::{RateLimitDescriptor, RateLimitRequest, Unit};

/// The most descriptors of a request: all of them are decided in one call to the store.
const MAX_DESCRIPTORS: usize = 100;
/// The most entries of a descriptor.
const MAX_ENTRIES: usize = 100;

/// A rate-limit request that was checked.
#[derive(Debug)]
pub(super) struct CheckedRequest<'m> {
    pub domain: &'m str,
    /// The descriptors in their order, each with the hits for which it is planned: at least one.
    pub descriptors: Vec<(Descriptor<'m>, u64)>,
    pub options: Vec<DescriptorOptions>,
}

/// The options that a client has sent with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorOptions {
    /// Whether its limits are only checked.
    pub checks: bool,
    /// The numbers in place of those of its limits.
    pub sent: Option<SentLimit>,
}

/// Numbers that a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentLimit {
    pub requests_per_unit: u32,
    pub unit: Unit,
    /// These numbers as a rate; none for no requests at all.
    pub rate: Option<Rate>,
}

impl<'m> CheckedRequest<'m> {
    /// Checks a message.
    pub fn new(message: &'m RateLimitRequest) -> Result<Self, String> {
        if message.domain.is_empty() {
            return Err("the domain is empty".into());
        }
        if message.descriptors.is_empty() {
            return Err("there are no descriptors".into());
        }
        if message.descriptors.len() > MAX_DESCRIPTORS {
            return Err(format!("there are more than {MAX_DESCRIPTORS} descriptors"));
        }
        let mut request = Self { domain: &message.domain, descriptors: Vec::new(), options: Vec::new() };
        for (index, sent) in message.descriptors.iter().enumerate() {
            let own = sent.hits_addend.map(|hits| hits.value);
            let hits = own.unwrap_or_else(|| u64::from(message.hits_addend.max(1)));
            let options = options(sent, hits).map_err(|error| format!("descriptor {index}: {error}"))?;
            let entries = sent.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
            request.descriptors.push((Descriptor(entries), hits.max(1)));
            request.options.push(options);
        }
        Ok(request)
    }
}

fn options(descriptor: &RateLimitDescriptor, hits: u64) -> Result<DescriptorOptions, &'static str> {
    if descriptor.entries.len() > MAX_ENTRIES {
        return Err("it has more than 100 entries");
    }
    if descriptor.is_negative_hits {
        return Err("negative hits are not supported: units can't be given back");
    }
    let Some(limit) = descriptor.limit else {
        return Ok(DescriptorOptions { checks: hits == 0, sent: None });
    };
    let unit = limit.unit();
    let seconds = unit.seconds().ok_or("the unit of its limit is not known")?;
    let rate = Rate::new(limit.requests_per_unit.into(), Micros(seconds * Micros::SECOND.0)).ok();
    let sent = SentLimit { requests_per_unit: limit.requests_per_unit, unit, rate };
    Ok(DescriptorOptions { checks: hits == 0, sent: Some(sent) })
}
