//! What a family makes of its config fields, read off its text: which count layers, what they are compared with.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::ir::{ConfigPath, FieldKind, FieldType, Load, LoadBinary, LoadKind, Program, Setting, Statement, Type};

use super::draw::each_field;

/// What the family makes of its fields.
#[derive(Default)]
pub struct Hints {
    /// How many layers, taps and the like there are.
    pub counts: BTreeSet<ConfigPath>,
    /// How many tokens the model tells apart.
    pub vocabulary: BTreeSet<ConfigPath>,
    /// What a field is compared with.
    pub compared: BTreeMap<ConfigPath, Vec<f64>>,
}

impl Hints {
    pub fn of(program: &Program) -> Hints {
        let mut hints = Hints::default();
        hints.counted(program);
        let logits = program.graph("forward").and_then(|forward| forward.results.first());
        if let Some(Type::Tensor(logits)) = logits {
            let atoms = logits.shape.dims.last().into_iter().flat_map(|dim| dim.atoms());
            atoms.for_each(|atom| configs(&atom.load, &mut hints.vocabulary));
        }
        each_load(program, &mut |load| {
            let LoadKind::Binary(op, left, right) = &load.kind else { return };
            let is_order = matches!(
                op,
                LoadBinary::Equal
                    | LoadBinary::NotEqual
                    | LoadBinary::Less
                    | LoadBinary::LessEqual
                    | LoadBinary::Greater
                    | LoadBinary::GreaterEqual
            );
            for (field, number) in [(left, right), (right, left)] {
                let LoadKind::Config(path) = &field.kind else { continue };
                let number = if let LoadKind::Int(n) = number.kind {
                    n as f64
                } else if let LoadKind::Float(x) = number.kind {
                    x
                } else {
                    continue;
                };
                if is_order {
                    hints.compared.entry(path.clone()).or_default().push(number);
                }
            }
        });
        hints
    }

    /// Bounds of arrays, also through parameters of blocks, and what indices point into.
    fn counted(&mut self, program: &Program) {
        let mut parameters: BTreeSet<(u32, String)> = BTreeSet::new();
        loop {
            let before = parameters.len();
            for (id, block) in program.blocks.iter().enumerate() {
                for field in &block.fields {
                    let mut bounds: Vec<&Load> = Vec::new();
                    let (child, arguments) = match &field.kind {
                        FieldKind::Children { block, arguments, low, high, .. } => {
                            bounds.extend([low, high]);
                            (*block, arguments)
                        }
                        FieldKind::Child { block, arguments } => (*block, arguments),
                        FieldKind::Tensor(_)
                        | FieldKind::Matrix(_)
                        | FieldKind::State(_)
                        | FieldKind::Let(_)
                        | FieldKind::Derived { .. } => continue,
                    };
                    let named = program.block(child).parameters.iter().zip(arguments);
                    let passed = named.filter(|(p, _)| parameters.contains(&(child.0, p.name.clone())));
                    bounds.extend(passed.map(|(_, argument)| argument).collect::<Vec<_>>());
                    for bound in bounds {
                        configs(bound, &mut self.counts);
                        each_part(bound, &mut |load| {
                            if let LoadKind::Parameter(name) = &load.kind {
                                parameters.insert((id as u32, name.clone()));
                            }
                        });
                    }
                }
            }
            if parameters.len() == before {
                break;
            }
        }
        each_field(&program.config, &mut |field| {
            let mut ty = &field.ty;
            while let FieldType::List(item) = ty {
                ty = item;
            }
            if let FieldType::Index(count) = ty {
                configs(count, &mut self.counts);
            }
        });
    }
}

/// Every load expression of the config, and of the blocks what decides and what is named; with its parts.
pub fn each_load(program: &Program, visit: &mut dyn FnMut(&Load)) {
    fn of(settings: &[Setting], visit: &mut dyn FnMut(&Load)) {
        for setting in settings {
            match setting {
                Setting::Section(section) => {
                    section.condition.iter().for_each(|load| each_part(load, visit));
                    of(&section.settings, visit);
                }
                Setting::Field(field) => {
                    field.otherwise.iter().chain(&field.condition).for_each(|load| each_part(load, visit));
                }
                Setting::Limit { value, .. } => each_part(value, visit),
                Setting::Let { value, condition, .. } => {
                    [value].into_iter().chain(condition).for_each(|load| each_part(load, visit));
                }
                Setting::Require(require) => each_part(&require.condition, visit),
            }
        }
    }
    of(&program.config, visit);
    for block in &program.blocks {
        for field in &block.fields {
            field.condition.iter().for_each(|load| each_part(load, visit));
            if let FieldKind::Let(value) = &field.kind {
                each_part(value, visit);
            }
        }
        for function in &block.functions {
            function.body.for_each(&mut |statement| {
                if let Statement::If { condition: load, .. } | Statement::Let { value: load, .. } = statement {
                    each_part(load, visit);
                }
            });
        }
    }
}

fn each_part(load: &Load, visit: &mut dyn FnMut(&Load)) {
    visit(load);
    load.for_each_part(&mut |part| each_part(part, visit));
}

/// Whether it can only be known within a list or a block.
pub fn has_locals(load: &Load) -> bool {
    let mut found = false;
    each_part(load, &mut |part| found |= matches!(part.kind, LoadKind::Local(_) | LoadKind::Parameter(_)));
    found
}

pub fn configs(load: &Load, out: &mut BTreeSet<ConfigPath>) {
    each_part(load, &mut |part| {
        if let LoadKind::Config(path) = &part.kind {
            out.insert(path.clone());
        }
    });
}
