//! `weir queue cancel`: by name at once, by filter after a look at what it matches.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{args::CancelArgs, filter::FilterArgs};
use crate::cli::{
    answers::{self, has},
    confirm::confirm,
    failure::Failure,
    output::{Format, Sheet, figures::many, print, say, show, table::plain},
    remote::{Admin, path::Path},
};

/// What a filter matched, and what became of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Matched {
    matched: u64,
    cancelled: u64,
    sample: Vec<String>,
}

has! { Matched: "cancelled"; }

impl Sheet for Matched {
    fn sheet(&self, wide: bool) -> String {
        let mut text = match (self.matched, self.cancelled) {
            (0, 0) => "nothing matches\n".to_owned(),
            (matched, 0) => format!("{matched} would be cancelled\n"),
            (matched, cancelled) if cancelled < matched => {
                format!("{cancelled} of {matched} cancelled; the others had left the queue\n")
            }
            (_, cancelled) => format!("{cancelled} cancelled\n"),
        };
        let shown = if wide { self.sample.len() } else { 5 };
        for request in self.sample.iter().take(shown) {
            text += &format!("  {}\n", plain(request));
        }
        let hidden = self.matched.saturating_sub(shown.min(self.sample.len()) as u64);
        if hidden > 0 && !self.sample.is_empty() {
            text += &format!("  and {hidden} more\n");
        }
        text
    }
}

pub(super) fn run(admin: &Admin, format: Format, what: &CancelArgs) -> Result<(), Failure> {
    match (what.requests.is_empty(), what.filter.is_empty()) {
        (false, _) => by_name(admin, format, what),
        (true, false) => by_filter(admin, format, what),
        (true, true) => Err(Failure::Usage(
            "name what to cancel: request ids, or a filter such as --lane, --band, --tenant, --late or \
             --older-than"
                .to_owned(),
        )),
    }
}

/// Cancels each; one that is gone does not keep the others.
fn by_name(admin: &Admin, format: Format, what: &CancelArgs) -> Result<(), Failure> {
    let body = what.filter.pool.as_ref().map_or_else(|| json!({}), |pool| json!({"pool": pool}));
    let mut worst = Ok(());
    for request in &what.requests {
        let path = Path::new("/requests").segment(request).segment("cancel");
        match admin.post(path.as_str(), &body) {
            Ok(answer) if format.is_for_people() => {
                answers::check::<Matched>(&answer)
                    .map_err(|error| Failure::not_understood("cancel", error))?;
                print(&format!("{} cancelled\n", plain(request)))?;
            }
            Ok(answer) => format.print::<Matched>("cancel", answer)?,
            Err(failure @ (Failure::Unreachable(_) | Failure::Refused(_))) => return Err(failure),
            Err(failure) => {
                // The last one is said by the exit.
                if let Err(before) = std::mem::replace(&mut worst, Err(failure)) {
                    say(before);
                }
            }
        }
    }
    worst
}

fn by_filter(admin: &Admin, format: Format, what: &CancelArgs) -> Result<(), Failure> {
    if what.dry_run || !what.yes {
        let answer = matching(admin, &what.filter)?;
        if what.dry_run {
            return format.print::<Matched>("cancel", answer);
        }
        let matched: Matched = answers::read(answer.clone())
            .map_err(|error| Failure::not_understood("cancel", error))?;
        if matched.matched == 0 {
            return format.print::<Matched>("cancel", answer);
        }
        show(&matched.sheet(false));
        confirm(false, &format!("cancel {}", many(matched.matched, "waiting request")))?;
    }
    let answer = admin.post("/requests/cancel", &what.filter.body(false))?;
    format.print::<Matched>("cancel", answer)
}

fn matching(admin: &Admin, filter: &FilterArgs) -> Result<Value, Failure> {
    admin.post("/requests/cancel", &filter.body(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(matched: u64, cancelled: u64, sample: usize) -> String {
        let sample = (0..sample).map(|number| format!("r-{number}")).collect();
        Matched { matched, cancelled, sample }.sheet(false)
    }

    #[test]
    fn what_was_matched_and_cancelled_is_said_with_a_few_names() {
        assert_eq!(said(0, 0, 0), "nothing matches\n");
        assert_eq!(said(2, 0, 2), "2 would be cancelled\n  r-0\n  r-1\n");
        assert_eq!(said(3, 3, 0), "3 cancelled\n");
        assert_eq!(said(3, 2, 0), "2 of 3 cancelled; the others had left the queue\n");
        assert!(said(20_000, 0, 20).ends_with("  r-4\n  and 19995 more\n"));
    }
}
