//! The policy of a pool as it is written: a preset's name, or a mapping that starts from a preset and
//! replaces parts of it.
//!
//! A part that needs no numbers may be written as its kind alone: `picker: random` is
//! `picker: { kind: random }`. `weir check` writes every part out.

use std::{fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        Error, MapAccess, Visitor,
        value::{MapAccessDeserializer, MapDeserializer, StrDeserializer},
    },
};
use weir_core::{
    Policy, Rules,
    policy::{Admission, Affinity, Filter, Hopeless, Mode, Order, Picker, Scorer, check},
};

use super::{Problems, choice};

/// A policy as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum RawPolicy {
    /// A preset as it is.
    Preset(Policy),
    /// A preset of which parts are replaced.
    Changed(Box<RawRules>),
}

impl Default for RawPolicy {
    fn default() -> Self {
        Self::Preset(Policy::default())
    }
}

/// A preset and the parts that are replaced in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRules {
    preset: Policy,
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<Part<Admission>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    require_slo: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filters: Option<Vec<Part<Filter>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<Part<Affinity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scorer: Option<Part<Scorer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picker: Option<Part<Picker>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hopeless: Option<Hopeless>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slo_buffer: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// A part: a mapping with a `kind`, or the kind alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
struct Part<T>(T);

impl RawPolicy {
    /// The preset that it is, or starts from.
    pub fn preset(&self) -> Policy {
        match self {
            Self::Preset(policy) => *policy,
            Self::Changed(raw) => raw.preset,
        }
    }

    /// What it says.
    pub fn rules(&self) -> Rules {
        match self {
            Self::Preset(policy) => policy.rules(),
            Self::Changed(raw) => raw.over(raw.preset.rules()),
        }
    }

    /// The same with every part written out.
    #[must_use]
    pub fn spelled_out(&self) -> Self {
        Self::Changed(Box::new(RawRules::spell_out(self.preset(), self.rules())))
    }

    /// Notes what cannot be used; `key` is where it stands.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        for (part, why) in check::problems(&self.rules()) {
            problems.add(&format!("{key}.{part}"), why);
        }
    }
}

impl RawRules {
    fn over(&self, preset: Rules) -> Rules {
        let filters = self.filters.as_ref();
        Rules {
            admission: self.admission.map_or(preset.admission, |part| part.0),
            require_slo: self.require_slo.unwrap_or(preset.require_slo),
            filters: filters.map_or(preset.filters, |all| all.iter().map(|part| part.0).collect()),
            affinity: self.affinity.map_or(preset.affinity, |part| part.0),
            scorer: self.scorer.map_or(preset.scorer, |part| part.0),
            picker: self.picker.map_or(preset.picker, |part| part.0),
            dispatch: self.dispatch.unwrap_or(preset.dispatch),
            order: self.order.unwrap_or(preset.order),
            hopeless: self.hopeless.unwrap_or(preset.hopeless),
            slo_buffer: self.slo_buffer.unwrap_or(preset.slo_buffer),
            seed: self.seed.unwrap_or(preset.seed),
        }
    }

    fn spell_out(preset: Policy, rules: Rules) -> Self {
        Self {
            preset,
            admission: Some(Part(rules.admission)),
            require_slo: Some(rules.require_slo),
            filters: Some(rules.filters.into_iter().map(Part).collect()),
            affinity: Some(Part(rules.affinity)),
            scorer: Some(Part(rules.scorer)),
            picker: Some(Part(rules.picker)),
            dispatch: Some(rules.dispatch),
            order: Some(rules.order),
            hopeless: Some(rules.hopeless),
            slo_buffer: Some(rules.slo_buffer),
            seed: Some(rules.seed),
        }
    }
}

impl Serialize for RawPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Preset(policy) => policy.serialize(to),
            Self::Changed(raw) => raw.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for RawPolicy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawPolicy;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("the name of a policy, or a mapping with `preset` and what differs")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<RawPolicy, E> {
                Policy::deserialize(StrDeserializer::new(name)).map(RawPolicy::Preset)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RawPolicy, M::Error> {
                let rules = RawRules::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawPolicy::Changed(Box::new(rules)))
            }
        }

        from.deserialize_any(Either)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = Part<T>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a kind, or a mapping with `kind` and its numbers")
            }

            fn visit_str<E: Error>(self, kind: &str) -> Result<Part<T>, E> {
                let map = MapDeserializer::new([("kind", kind)].into_iter());
                T::deserialize(map).map(Part)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Part<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Part)
            }
        }

        from.deserialize_any(Either(PhantomData))
    }
}

/// A part's schema: its kind alone, or a mapping whose numbers docs/policies.md lists.
fn part(kinds: &[&str]) -> Schema {
    let kind = choice(kinds);
    json_schema!({ "oneOf": [
        kind.clone(),
        { "type": "object", "required": ["kind"], "properties": { "kind": kind } },
    ] })
}

impl JsonSchema for RawPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = choice(&Policy::ALL.map(Policy::name));
        let filters = part(&[
            "headroom",
            "headroom-tier",
            "saturation",
            "capacity",
            "failover",
            "staleness",
            "latency",
        ]);
        json_schema!({ "oneOf": [names.clone(), {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "preset": names,
                "admission": part(&["open", "latency-slo", "probabilistic"]),
                "require_slo": { "type": "boolean" },
                "filters": { "type": "array", "items": filters },
                "affinity": part(&["none", "warm-wait", "prefix-cache"]),
                "scorer": part(&["none", "fewest-tokens", "headroom", "lowest-latency", "load-prefix",
                    "least-request", "pattern-load"]),
                "picker": part(&["best", "top-random", "weighted-random", "random", "round-robin",
                    "power-of-two"]),
                "dispatch": choice(&["pull", "pull-strict", "pull-reservation", "pull-backfill", "push"]),
                "order": choice(&["head-start", "deadline", "slo-deadline", "slack", "violation", "fifo", "shortest-first"]),
                "hopeless": choice(&["demote", "refuse", "serve"]),
                "slo_buffer": { "type": "number", "exclusiveMinimum": 0 },
                "seed": { "type": "integer", "minimum": 0 },
            },
        }] })
    }
}

#[cfg(test)]
mod tests;
