//! Parameters and expressions of one endpoint, being compiled: names become slots, types are settled by use.

use crate::endpoint::eval::{Eval, coerce};
use crate::endpoint::params::{Check, Missing, ParamPlan, ParamSource, Params};
use crate::start_error::StartError;
use forebay_config::model::{self, Constraint, Expr, Function, Literal, Part};
use forebay_value::{Schema, Type, Value};

/// The parameters found so far.
pub struct ParamTable {
    entries: Vec<CompiledParam>,
    fields: Vec<String>,
    path: Vec<String>,
    headers: Vec<(String, String)>,
    public_url: Option<String>,
}

struct CompiledParam {
    plan: ParamPlan,
    /// Whether the type is settled, by the config or by the first use.
    is_typed: bool,
    /// Whether the config says nothing of it: then its use also says whether it may be missing.
    is_implicit: bool,
}

/// What the place where an expression stands says of it.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedValue {
    /// The type, where it is known.
    pub ty: Option<Type>,
    /// Whether null will do.
    pub may_be_null: bool,
}

impl ExpectedValue {
    /// Any type, not null.
    pub const ANY: ExpectedValue = ExpectedValue { ty: None, may_be_null: false };

    /// This type, not null.
    pub fn typed(ty: Type) -> ExpectedValue {
        ExpectedValue { ty: Some(ty), may_be_null: false }
    }

    /// The same, null will do.
    pub fn or_null(self) -> ExpectedValue {
        ExpectedValue { may_be_null: true, ..self }
    }
}

/// What `$name` may mean besides a parameter.
#[derive(Clone, Copy)]
pub enum Columns<'a> {
    /// Nothing.
    None,
    /// A column of the answer's row, by name.
    Answer(&'a [String]),
    /// A column of the row that is being made.
    Own(&'a Schema),
}

/// The hidden parameter that holds `base_url()`. No name in a config has a space.
const BASE_URL: &str = "base url";

impl ParamTable {
    /// The declared parameters of an endpoint.
    pub fn new(endpoint: &model::Endpoint, public_url: Option<&str>) -> Result<ParamTable, StartError> {
        let mut table = ParamTable {
            entries: Vec::new(),
            fields: Vec::new(),
            path: endpoint.path_params().map(str::to_owned).collect(),
            headers: endpoint.headers.clone(),
            public_url: public_url.map(str::to_owned),
        };
        for param in &endpoint.params {
            table.declare(param)?;
        }
        Ok(table)
    }

    /// No parameters, for rows that no request makes.
    pub fn empty() -> ParamTable {
        ParamTable {
            entries: Vec::new(),
            fields: Vec::new(),
            path: Vec::new(),
            headers: Vec::new(),
            public_url: None,
        }
    }

    /// Whether requests have no parameters to read.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn declare(&mut self, param: &model::Param) -> Result<(), StartError> {
        let (source, given, missing) = match &param.kind {
            model::ParamKind::Computed(expr) => {
                let eval = self.compile(expr, ExpectedValue::ANY.or_null(), Columns::None)?;
                (ParamSource::Computed(eval), None, Missing::Null)
            }
            model::ParamKind::Given { ty, default, optional } => {
                let missing = match default {
                    Some(expr) => {
                        let wanted = ExpectedValue { ty: ty.map(|ty| ty.ty), may_be_null: true };
                        Missing::Default(self.compile(expr, wanted, Columns::None)?)
                    }
                    None if *optional => Missing::Null,
                    None => Missing::Refuse,
                };
                (self.source(&param.name), *ty, missing)
            }
        };
        let check = match given.map_or(Constraint::None, |given| given.constraint) {
            Constraint::None => Check::None,
            Constraint::Url => Check::Url,
            Constraint::Slug => Check::Slug,
            Constraint::Range { min, max } => Check::Range(min, max),
        };
        let plan = ParamPlan {
            name: param.name.clone(),
            source,
            ty: given.map_or(Type::TEXT, |given| given.ty),
            is_array: given.is_some_and(|given| given.is_array),
            check,
            missing,
        };
        self.entries.push(CompiledParam { plan, is_typed: given.is_some(), is_implicit: false });
        Ok(())
    }

    /// Where a parameter of this name comes from.
    fn source(&mut self, name: &str) -> ParamSource {
        if let Some(claim) = name.strip_prefix("auth.") {
            return ParamSource::Claim(claim.to_owned());
        }
        if let Some((header, _)) = self.headers.iter().find(|(_, param)| param == name) {
            return ParamSource::Header(header.clone());
        }
        if let Some(index) = self.path.iter().position(|param| param == name) {
            return ParamSource::Path(index);
        }
        let index = self.fields.iter().position(|field| field == name).unwrap_or_else(|| {
            self.fields.push(name.to_owned());
            self.fields.len() - 1
        });
        ParamSource::Field(index)
    }

    /// The slot of `$name`, used where `wanted` says; one that is not declared is made by its first use.
    pub fn slot(&mut self, name: &str, wanted: ExpectedValue) -> usize {
        let slot = self.entries.iter().position(|entry| entry.plan.name == name).unwrap_or_else(|| {
            let source = self.source(name);
            let missing = if wanted.may_be_null { Missing::Null } else { Missing::Refuse };
            let plan = ParamPlan {
                name: name.to_owned(),
                source,
                ty: Type::TEXT,
                is_array: false,
                check: Check::None,
                missing,
            };
            self.entries.push(CompiledParam { plan, is_typed: false, is_implicit: true });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[slot];
        if let (false, Some(ty)) = (entry.is_typed, wanted.ty) {
            (entry.plan.ty, entry.is_typed) = (ty, true);
        }
        if entry.is_implicit && !wanted.may_be_null {
            entry.plan.missing = Missing::Refuse;
        }
        slot
    }

    fn base_url(&mut self) -> usize {
        if let Some(slot) = self.entries.iter().position(|entry| entry.plan.name == BASE_URL) {
            return slot;
        }
        let plan = ParamPlan {
            name: BASE_URL.to_owned(),
            source: ParamSource::BaseUrl(self.public_url.clone()),
            ty: Type::TEXT,
            is_array: false,
            check: Check::None,
            missing: Missing::Null,
        };
        self.entries.push(CompiledParam { plan, is_typed: true, is_implicit: false });
        self.entries.len() - 1
    }

    /// All parameters, settled.
    pub fn finish(self) -> Params {
        let plans = self.entries.into_iter().map(|entry| entry.plan).collect();
        Params { plans, fields: self.fields, skips_body: false, is_strict: false, needs_json_type: false }
    }

    /// Compiles an expression.
    pub fn compile(
        &mut self,
        expr: &Expr,
        wanted: ExpectedValue,
        columns: Columns<'_>,
    ) -> Result<Eval, StartError> {
        Ok(match expr {
            Expr::Param(name) => match columns {
                Columns::Answer(names) if names.contains(name) => {
                    Eval::Column(names.iter().position(|column| column == name).expect("it is among them"))
                }
                Columns::Own(_) if !wanted.may_be_null => {
                    let slot = self.slot(name, wanted);
                    let entry = &mut self.entries[slot];
                    if entry.is_implicit {
                        entry.plan.missing = Missing::NotNull;
                    }
                    Eval::Slot(slot)
                }
                _ => Eval::Slot(self.slot(name, wanted)),
            },
            Expr::Column(name) => match columns {
                Columns::Own(schema) => {
                    Eval::Column(schema.position(name).ok_or_else(|| no_column(schema, name))?)
                }
                _ => return Err(format!("`${name}` means a column where there is no row").into()),
            },
            Expr::Literal(literal) => Eval::Const(literal_value(literal, wanted.ty)?),
            Expr::Call { function, args } => self.compile_call(*function, args, columns)?,
            Expr::Coalesce(first, second) => Eval::Coalesce(
                Box::new(self.compile(first, wanted.or_null(), columns)?),
                Box::new(self.compile(second, wanted, columns)?),
            ),
            Expr::Template(parts) => {
                let compile_part = |part: &Part| match part {
                    Part::Text(text) => Ok(Eval::Const(Value::Text(text.as_str().into()))),
                    Part::Expr(expr) => self.compile(expr, ExpectedValue::ANY, columns),
                };
                Eval::Template(parts.iter().map(compile_part).collect::<Result<_, _>>()?)
            }
        })
    }

    fn compile_call(
        &mut self,
        function: Function,
        args: &[Expr],
        columns: Columns<'_>,
    ) -> Result<Eval, StartError> {
        let count = |index: usize| match args.get(index) {
            Some(Expr::Literal(Literal::Int(count))) => {
                usize::try_from(*count).map_err(|_| "a length below 0".into())
            }
            _ => Err("a length must be a fixed number".to_owned()),
        };
        Ok(match function {
            Function::Uuid => Eval::Uuid4,
            Function::Uuid7 => Eval::Uuid7,
            Function::Now => match args {
                [seconds] => {
                    let wanted = ExpectedValue::typed(Type::Bigint).or_null();
                    let name = if let Expr::Param(name) = seconds { name.as_str() } else { "now" };
                    Eval::NowIn(Box::new(self.compile(seconds, wanted, columns)?), name.to_owned())
                }
                _ => Eval::Now,
            },
            Function::RandomBase64 => Eval::RandomBase64(count(0)?),
            Function::RandomCode => Eval::RandomCode(count(0)?),
            Function::RandomInt => {
                let named = args.iter().rev().find_map(|arg| match arg {
                    Expr::Param(name) => Some(name.clone()),
                    _ => None,
                });
                let wanted = ExpectedValue::typed(Type::Bigint);
                Eval::RandomInt(
                    Box::new(self.compile(&args[0], wanted, columns)?),
                    Box::new(self.compile(&args[1], wanted, columns)?),
                    named.unwrap_or_else(|| "random_int".into()),
                )
            }
            Function::OneOf => {
                let choices = args.iter().map(|arg| self.compile(arg, ExpectedValue::ANY, columns));
                Eval::OneOf(choices.collect::<Result<_, _>>()?)
            }
            Function::Given => match args.first() {
                Some(Expr::Param(name)) => Eval::Given(self.slot(name, ExpectedValue::ANY.or_null())),
                _ => return Err("given() takes a parameter".into()),
            },
            Function::BaseUrl => Eval::Slot(self.base_url()),
            Function::Sha256 => {
                Eval::Sha256(Box::new(self.compile(&args[0], ExpectedValue::typed(Type::TEXT), columns)?))
            }
        })
    }
}

/// Says that a table has no such column, and which it has.
pub fn no_column(schema: &Schema, name: &str) -> StartError {
    let names: Vec<_> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    format!("table {} has no column `{name}` (it has {})", schema.name, names.join(", ")).into()
}

/// A literal as a value of the wanted type.
pub fn literal_value(literal: &Literal, ty: Option<Type>) -> Result<Value, StartError> {
    let value = match literal {
        Literal::Text(text) => Value::Text(text.as_str().into()),
        Literal::Int(number) => Value::Bigint(*number),
        Literal::Float(number) => match ty.map(Type::unbounded) {
            Some(Type::Numeric) => Value::Numeric(number.to_string().into()),
            _ => Value::Double(*number),
        },
        Literal::Bool(truth) => Value::Bool(*truth),
    };
    match ty {
        Some(ty) => coerce(value, ty).map_err(|what| format!("the value {literal:?} {what}").into()),
        None => Ok(value),
    }
}
