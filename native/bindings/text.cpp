/// Tokenizer and chat prompt.
#include <filesystem>
#include <memory>
#include <string>

#include "python.h"
#include "text/chat_json.h"
#include "text/chat_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace aima::bindings {
namespace {

IntArray array_of(const std::vector<std::int32_t>& ids) {
  return IntArray(static_cast<py::ssize_t>(ids.size()), ids.data());
}

std::shared_ptr<text::Tokenizer> load(const std::filesystem::path& file) {
  const py::gil_scoped_release released;
  return text::Tokenizer::load(file);
}

IntArray encode(const text::Tokenizer& tokenizer, const std::string& utf8, bool added_tokens) {
  std::vector<std::int32_t> ids;
  {
    const py::gil_scoped_release released;
    ids = tokenizer.encode(utf8, added_tokens);
  }
  return array_of(ids);
}

std::string decode(const text::Tokenizer& tokenizer, const py::object& ids, bool skip_special) {
  const Ids given(ids);
  const py::gil_scoped_release released;
  return tokenizer.decode(given.span(), skip_special);
}

text::ChatPrompt render(const std::string& request, bool openai) {
  const py::gil_scoped_release released;
  text::Json json = text::parse_json(request, "request");
  if (openai) json = text::normalise_chat(std::move(json));
  return text::render_chat(json);
}

py::list ranges(const text::ChatPrompt& prompt) {
  py::list out;
  for (const text::ByteRange& range : prompt.trusted) out.append(py::make_tuple(range.begin, range.end));
  return out;
}

}  // namespace

void add_text(py::module_& module) {
  py::class_<text::ChatPrompt>(module, "ChatPrompt")
      .def_readonly("text", &text::ChatPrompt::text)
      .def_property_readonly("trusted", ranges)
      .def_readonly("boundaries", &text::ChatPrompt::boundaries)
      .def_readonly("generation", &text::ChatPrompt::generation);
  py::class_<text::ChatTokens>(module, "ChatTokens")
      .def_property_readonly("ids", [](const text::ChatTokens& tokens) { return array_of(tokens.ids); })
      .def_readonly("boundaries", &text::ChatTokens::boundaries)
      .def_readonly("generation", &text::ChatTokens::generation);
  py::class_<text::Tokenizer, std::shared_ptr<text::Tokenizer>>(module, "Tokenizer")
      .def(py::init(&load), py::arg("file"))
      .def_property_readonly("vocab_size", &text::Tokenizer::vocab_size)
      .def("encode", encode, py::arg("text"), py::kw_only(), py::arg("added_tokens") = false)
      .def("decode", decode, py::arg("ids"), py::kw_only(), py::arg("skip_special") = true)
      .def(
          "encode_chat",
          [](const text::Tokenizer& tokenizer, const text::ChatPrompt& prompt, bool typed_tokens) {
            return text::encode_chat(tokenizer, prompt, typed_tokens);
          },
          py::arg("prompt"), py::kw_only(), py::arg("typed_tokens") = false,
          py::call_guard<py::gil_scoped_release>());
  module.def("render_chat", render, py::arg("request"), py::kw_only(), py::arg("openai") = false);
}

}  // namespace aima::bindings
