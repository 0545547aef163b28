//! Which ops the code of one backend calls: those that its blocks reach, and the twins that may stand in for them there.

use std::collections::BTreeSet;

use mgraph_dsl::ir::{OpId, OpKind, Program, Region, Statement, Twin, TwinBackend, TwinTarget};

pub(crate) fn ops(program: &Program, backend: TwinBackend) -> BTreeSet<OpId> {
    let mut waiting = Vec::new();
    for function in program.blocks.iter().flat_map(|block| &block.functions) {
        calls(&function.body, &mut waiting);
    }
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id) {
            continue;
        }
        if let OpKind::Tensor { function, twins } = &program.op(id).kind {
            calls(&function.body, &mut waiting);
            for Twin { target, .. } in twins.iter().filter(|twin| twin.backend == backend) {
                match target {
                    TwinTarget::Op(op) => waiting.push(*op),
                    TwinTarget::Kernel { setup, .. } => called(setup, &mut waiting),
                }
            }
        }
    }
    reached
}

fn calls(region: &Region, found: &mut Vec<OpId>) {
    called(&region.statements, found);
}

fn called(statements: &[Statement], found: &mut Vec<OpId>) {
    for statement in statements {
        match statement {
            Statement::CallOp { op, .. } => found.push(*op),
            Statement::If { then, otherwise, .. } => {
                calls(then, found);
                calls(otherwise, found);
            }
            Statement::For { body, .. } => calls(body, found),
            Statement::Prim { .. }
            | Statement::List { .. }
            | Statement::Let { .. }
            | Statement::Weight { .. }
            | Statement::StateRead { .. }
            | Statement::StateWrite { .. }
            | Statement::CallBlock { .. }
            | Statement::Probe { .. } => {}
        }
    }
}
