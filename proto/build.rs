//! Compiles the protocol files, in Rust all the way, and derives two lists from them: the methods of the public
//! service, and the messages whose secrets must stay out of debug output.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use protox::Compiler;
use protox::prost_reflect::{DescriptorPool, ExtensionDescriptor, MessageDescriptor, Value};

/// The folders of protocol files; files import each other by bare name.
const FOLDERS: [&str; 2] = ["openshell", "roadstead"];
const SERVICE: &str = "openshell.v1.OpenShell";
const SECRET_OPTION: &str = "openshell.options.v1.secret";

fn main() -> Result<(), Box<dyn Error>> {
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = Compiler::new(FOLDERS)?;
    compiler.include_imports(true).include_source_info(true).open_files(proto_files()?)?;
    fs::write(out_dir.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let pool = compiler.descriptor_pool();
    let secretive = secretive_messages(&pool)?;
    fs::write(out_dir.join("redacted.rs"), redactions(&secretive)?)?;
    fs::write(out_dir.join("methods.rs"), methods(&pool)?)?;

    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .include_file("packages.rs")
        .skip_debug(secretive.iter().map(|message| format!(".{}", message.full_name())))
        .compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}

/// All protocol files, in a stable order.
#[allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn proto_files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        println!("cargo:rerun-if-changed={folder}");
        for entry in fs::read_dir(folder)? {
            files.push(entry?.path());
        }
    }
    files.retain(|path| path.extension() == Some("proto".as_ref()));
    files.sort();
    Ok(files)
}

/// The messages that have a field with the secret option.
fn secretive_messages(pool: &DescriptorPool) -> Result<Vec<MessageDescriptor>, Box<dyn Error>> {
    let secret = pool.get_extension_by_name(SECRET_OPTION).ok_or("the secret option is not declared")?;
    let secretive = pool.all_messages().filter(|message| is_secretive(message, &secret)).collect::<Vec<_>>();
    Ok(secretive)
}

fn is_secretive(message: &MessageDescriptor, secret: &ExtensionDescriptor) -> bool {
    message.fields().any(|field| *field.options().get_extension(secret) == Value::Bool(true))
}

/// One `redacted!` line for every type that loses its derived `Debug`: skipping it for a message also skips it for
/// the oneofs and messages inside.
fn redactions(secretive: &[MessageDescriptor]) -> Result<String, Box<dyn Error>> {
    let mut lines = String::new();
    for message in secretive {
        if message.parent_message().is_some() || message.child_messages().any(|child| !child.is_map_entry()) {
            return Err(format!("{}: keep messages with secrets flat", message.full_name()).into());
        }
        let package = message.package_name().replace('.', "::");
        let name = message.name();
        writeln!(lines, "redacted!({package}::{name}, \"{name}\");")?;
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let (module, oneof) = (snake_case(name), camel_case(oneof.name()));
            writeln!(lines, "redacted!({package}::{module}::{oneof}, \"{oneof}\");")?;
        }
    }
    Ok(lines)
}

/// The methods of the public service, as an argument list for the macro that makes the enum.
fn methods(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let service = pool.get_service_by_name(SERVICE).ok_or("the public service is missing")?;
    let names = service.methods().map(|method| method.name().to_owned()).collect::<Vec<_>>();
    Ok(format!("methods! {{ {} }}\n", names.join(", ")))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn camel_case(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}
