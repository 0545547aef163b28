//! The report for people: one page that needs nothing else, made of the report for machines and two pictures.
//!
//! Its names come from files: everything is escaped by the template engine, and a policy in the page forbids scripts and requests.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value as Shown, context};
use serde_json::Value;

use super::plot::{Heat, Plot};
use crate::error::{Context, Result};

const TEMPLATE: &str = include_str!("page.html");

pub(super) struct Pictures {
    pub plot: Option<Plot>,
    /// Of the first row that diverged, where it has numbers.
    pub heat: Option<Heat>,
}

pub(super) fn page(report: &Value, pictures: &Pictures) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("brief", brief);
    environment.add_filter("precise", precise);
    environment.add_filter("shares", shares);
    environment.add_template("page", TEMPLATE).context("the template of the report")?;
    let template = environment.get_template("page").context("the template of the report")?;
    let context = context! { report, plot => pictures.plot, heat => pictures.heat };
    template.render(context).context("writing the report's page")
}

/// Two digits, as in the table on standard output.
fn brief(value: &Shown) -> String {
    digits(value, 1)
}

/// As many as tell floats of 32 bits apart.
fn precise(value: &Shown) -> String {
    digits(value, 8)
}

/// What is no finite number is a text already.
fn digits(value: &Shown, after_the_first: usize) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) => format!("{number:.after_the_first$e}"),
        Err(_) => value.to_string(),
    }
}

/// Counts as percentages.
fn shares(counts: Vec<f64>) -> Vec<f64> {
    let all = counts.iter().sum::<f64>().max(1.0);
    counts.into_iter().map(|count| 100.0 * count / all).collect()
}
