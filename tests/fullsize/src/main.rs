//! `mgraph-fullsize DIR`: the checkpoint of `make vision`, with a picture of one tile and one of eight.

use std::{path::PathBuf, time::Instant};

use clap::Parser;
use mgraph_fullsize::{Result, Shapes, Stored, View, checkpoint, inputs};

/// Random weights of the released Molmo2-4B vision shapes, and pictures
#[derive(Parser)]
struct Arguments {
    /// Folder that is written, or filled up
    dir: PathBuf,
    /// The dtype of the file
    #[arg(long, value_enum, default_value_t = Stored::F32)]
    stored: Stored,
    /// Stored layers of the tower: fewer are a quicker run of the same widths
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=25), default_value_t = 25)]
    layers: u16,
    #[arg(long, default_value_t = 20)]
    seed: u64,
}

fn main() -> Result<()> {
    let Arguments { dir, stored, layers, seed } = Arguments::parse();
    let (shapes, started) = (Shapes::RELEASED.of_layers(layers.into()), Instant::now());
    let count = checkpoint(&dir, &shapes, stored, seed)?;
    println!("{}: {:.3} billion parameters, {stored:?}", dir.display(), count as f64 / 1e9);
    for (name, tiles) in [("small", 1), ("large", 8)] {
        let View { width, height, crops, features, tokens } = inputs(&dir, &shapes, name, tiles, seed)?;
        println!("{name}.png: {width} x {height}, {crops} crops, {features} features, {tokens} tokens");
    }
    println!("written in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
