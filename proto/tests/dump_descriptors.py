"""Prints the wire facts of the installed `openshell` package, one a line, sorted and separated by tabs.

    python dump_descriptors.py > openshell-0.1.5.tsv
"""

from google.protobuf import descriptor_pb2
from openshell._proto import datamodel_pb2, openshell_pb2, options_pb2, sandbox_pb2

FIELD = descriptor_pb2.FieldDescriptorProto


def kind(field):
    if field.type in (FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM):
        return field.type_name.lstrip(".")
    return FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()


def show(value):
    if hasattr(value, "ListFields"):
        return " ".join(f"{field.name}={show(inner)}" for field, inner in value.ListFields())
    return str(value).lower() if isinstance(value, bool) else str(value)


def options(owner, descriptor):
    for option, value in descriptor.options.ListFields():
        yield "option", owner, option.full_name, show(value)


def span(start, last):
    return str(start) if start == last else f"{start}-{last}"


def enum_facts(package, enum):
    name = f"{package}.{enum.name}"
    yield "enum", name
    yield from options(name, enum)
    for value in enum.value:
        yield "value", name, value.name, value.number
        yield from options(f"{name}.{value.name}", value)
    for reserved in enum.reserved_range:
        yield "reserved", name, span(reserved.start, reserved.end)
    for reserved in enum.reserved_name:
        yield "reserved_name", name, reserved


def message_facts(package, message):
    name = f"{package}.{message.name}"
    yield "message", name
    yield from options(name, message)
    entries = {f"{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    for field in message.field:
        entry = entries.get(kind(field))
        oneof = "-"
        if entry:
            label, of = "map", ",".join(kind(part) for part in entry.field)
        elif field.proto3_optional:
            label, of = "optional", kind(field)
        else:
            label = "repeated" if field.label == FIELD.LABEL_REPEATED else "singular"
            of = kind(field)
            if field.HasField("oneof_index"):
                oneof = message.oneof_decl[field.oneof_index].name
        yield "field", f"{name}.{field.name}", field.number, label, of, oneof
        yield from options(f"{name}.{field.name}", field)
    for reserved in message.reserved_range:
        yield "reserved", name, span(reserved.start, reserved.end - 1)
    for reserved in message.reserved_name:
        yield "reserved_name", name, reserved
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from message_facts(name, nested)
    for enum in message.enum_type:
        yield from enum_facts(name, enum)


def service_facts(package, service):
    name = f"{package}.{service.name}"
    yield "service", name
    yield from options(name, service)
    for method in service.method:
        streams = show(method.client_streaming), show(method.server_streaming)
        yield "method", f"{name}.{method.name}", method.input_type[1:], method.output_type[1:], *streams
        yield from options(f"{name}.{method.name}", method)


def file_facts(file):
    yield "file", file.name, file.package, file.syntax
    yield from options(file.name, file)
    for extension in file.extension:
        name = f"{file.package}.{extension.name}"
        yield "extension", name, extension.number, extension.extendee[1:], kind(extension)
    for message in file.message_type:
        yield from message_facts(file.package, message)
    for enum in file.enum_type:
        yield from enum_facts(file.package, enum)
    for service in file.service:
        yield from service_facts(file.package, service)


def main():
    lines = set()
    for module in (options_pb2, datamodel_pb2, sandbox_pb2, openshell_pb2):
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        lines.update("\t".join(str(part) for part in fact) for fact in file_facts(file))
    print("\n".join(sorted(lines)))


main()
