//! `carina vnet impair`: impairs links on purpose.

use std::fmt::Display;
use std::str::FromStr;

use carina_text::table::Table;
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::{LinkReport, VnetReport};
use carina_vnet_host::link_name::NamedLink;

use super::agent::client;
use super::network::report_of;
use super::roles::inside;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Attempt, Outcome, failed, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options of `carina vnet impair`: the link, its new impairments and their direction.
#[derive(Debug, clap::Args)]
pub(crate) struct ImpairArgs {
    /// Link to impair: its number, one of its ends (NODE:INTERFACE), or its nodes (NODE,NODE)
    /// [default: show all impaired links]
    link: Option<String>,
    /// Impairments, such as delay=20ms, jitter=2ms, loss=1%, duplicate=1%, reorder=1%, corrupt=1%
    /// or rate=1Mbps; an impairment that is not named keeps its value from the document, if any
    #[arg(value_name = "WORD=VALUE", value_parser = Word::read, conflicts_with = "clear")]
    words: Vec<Word>,
    /// Impair only the frames that the named end sends [default: both directions]
    #[arg(long, requires = "link")]
    one_way: bool,
    /// Restore the impairments that the document gives the link, if any (with --one-way, in one
    /// direction)
    #[arg(long, requires = "link")]
    clear: bool,
    /// Name of the link's network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// One item of an impairment, such as `delay=20ms`.
#[derive(Clone, Debug)]
struct Word(Impairment);

impl Word {
    fn read(text: &str) -> Result<Word, ArgumentError> {
        let wrong = || ArgumentError::Impairment(IMPAIRMENT.to_owned());
        let (word, value) = text.split_once('=').ok_or_else(wrong)?;
        let mut read = Impairment::default();
        match word {
            "delay" => put(&mut read.delay, value),
            "jitter" => put(&mut read.jitter, value),
            "loss" => put(&mut read.loss, value),
            "duplicate" => put(&mut read.duplicate, value),
            "reorder" => put(&mut read.reorder, value),
            "corrupt" => put(&mut read.corrupt, value),
            "rate" => put(&mut read.rate, value),
            _ => Err(wrong()),
        }?;
        Ok(Word(read))
    }
}

fn put<T: FromStr<Err: Display>>(place: &mut Option<T>, value: &str) -> Result<(), ArgumentError> {
    let wrong = |error: T::Err| ArgumentError::Impairment(error.to_string());
    *place = Some(value.parse().map_err(wrong)?);
    Ok(())
}

const IMPAIRMENT: &str = "WORD=VALUE is expected; words are delay, jitter, loss, duplicate, reorder, corrupt, \
                          rate";

/// Impairs a link, or shows the impaired links.
///
/// # Errors
/// There is no such link, or the impairment is not possible.
pub(super) fn run(shared: &Shared, args: &ImpairArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let vno = args.operator.client(shared)?;
    let report = |name: Option<&str>| match &vno {
        Some(vno) => inside::report(vno, name),
        None => report_of(shared, name),
    };
    let before = report(args.vnet.as_deref())?;
    let Some(name) = &args.link else {
        return show(shared, &before);
    };
    let named = NamedLink::find(&before, name).map_err(failed)?;
    if args.words.is_empty() && !args.clear {
        return Err(usage(format!(
            "impair {name}: specify an impairment, such as delay=20ms loss=1%, or --clear"
        )));
    }
    let wanted = (!args.clear).then(|| together(&args.words));
    let mut both = if args.one_way {
        named.link.impairment
    } else {
        LinkImpairment {
            there: wanted,
            back: wanted,
        }
    };
    if args.one_way {
        *[&mut both.there, &mut both.back][named.side] = wanted;
    }
    let what = || format!("impairing link {name} of {}", before.name);
    match &vno {
        Some(vno) => {
            let impaired = vno.impair(&before.name, named.link, &both);
            impaired.attempt(what())?;
        }
        None => {
            let client = client(shared);
            let impaired = client.impair(&before.name, named.link.number, &both);
            impaired.attempt(what())?;
        }
    }
    show(shared, &report(Some(&before.name))?)
}

fn together(words: &[Word]) -> Impairment {
    let mut all = Impairment::default();
    for Word(word) in words {
        all.delay = word.delay.or(all.delay);
        all.jitter = word.jitter.or(all.jitter);
        all.loss = word.loss.or(all.loss);
        all.duplicate = word.duplicate.or(all.duplicate);
        all.reorder = word.reorder.or(all.reorder);
        all.corrupt = word.corrupt.or(all.corrupt);
        all.rate = word.rate.or(all.rate);
    }
    all
}

fn show(shared: &Shared, report: &VnetReport) -> Outcome {
    let links = report.links.iter();
    let impaired: Vec<&LinkReport> = links.filter(|link| !link.impairment.is_none()).collect();
    if shared.json {
        return print_json(&impaired);
    }
    if impaired.is_empty() {
        return print_line(format!("{}: no link is impaired", report.name));
    }
    let mut table = Table::new(["LINK", "FROM", "TO", "IMPAIRED BY", "LOST"]);
    for link in impaired {
        for side in [0, 1] {
            let Some(impairment) = link.impairment.of_side(side) else {
                continue;
            };
            table.row([
                link.number.to_string(),
                link.ends[side].clone(),
                link.ends[1 - side].clone(),
                impairment.to_string(),
                link.passed[side].lost.to_string(),
            ]);
        }
    }
    print_line(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        let read = |text: &str| Word::read(text).map_err(|error| error.to_string());
        let all = ["delay=20ms", "jitter=5ms", "loss=1%", "rate=2Mbps"];
        let all: Vec<Word> = all.iter().map(|word| read(word).unwrap()).collect();
        assert_eq!(
            together(&all).to_string(),
            "delay=20ms jitter=5ms loss=1% rate=2Mbps"
        );
        let error = read("delay").unwrap_err();
        assert!(error.contains("WORD=VALUE"), "{error}");
        let error = read("dealy=1ms").unwrap_err();
        assert!(error.contains("delay, jitter"), "{error}");
        let error = read("loss=120%").unwrap_err();
        assert!(error.contains("0% to 100%"), "{error}");
    }
}
