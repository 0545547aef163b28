//! Which ops the code of one backend calls: those that its blocks reach, and the twins that may stand in for them there.

use std::collections::BTreeSet;

use mgraph_dsl::ir::{OpId, OpKind, Program, Statement, Twin, TwinBackend, TwinTarget};

pub(crate) fn ops(program: &Program, backend: TwinBackend) -> BTreeSet<OpId> {
    let mut waiting = Vec::new();
    for function in program.blocks.iter().flat_map(|block| &block.functions) {
        called(&function.body.statements, &mut waiting);
    }
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id) {
            continue;
        }
        if let OpKind::Tensor { function, twins } = &program.op(id).kind {
            called(&function.body.statements, &mut waiting);
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

fn called(statements: &[Statement], found: &mut Vec<OpId>) {
    for statement in statements {
        statement.for_each(&mut |inner| {
            if let Statement::CallOp { op, .. } = inner {
                found.push(*op);
            }
        });
    }
}
