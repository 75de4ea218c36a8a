#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "support.h"

using namespace aima;
namespace fs = std::filesystem;

namespace {

std::size_t entries(const fs::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

std::string text_of(const fs::path& path) { return base::read_text(path); }

void put(const fs::path& path, std::string_view text) {
  base::AtomicFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

TEST_CASE("a file is written only where a regular file or nothing stands") {
  const test::TemporaryFolder folder;
  const fs::path fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_directory(folder.path() / "sub");
  for (const fs::path& bad :
       {fifo, folder.path() / "sub", folder.path() / "sub/", fs::path(), fs::path(".")}) {
    CAPTURE(bad.string());
    const base::Error error = test::error_of([&] { const base::AtomicFile file(bad, "--out"); });
    CHECK(error.exit() == base::Exit::usage);
    CHECK(error.text().what == "no file can be written there");
    CHECK(error.text().where == "--out `" + bad.string() + "`");
    CHECK(!error.text().why.empty());
  }
  CHECK(fs::is_fifo(fifo));
  CHECK(entries(folder.path()) == 2);
  CHECK(test::error_of([&] { const base::AtomicFile file(folder.path() / "none/x"); }).exit() ==
        base::Exit::failed);
}

TEST_CASE("a link to a file stays a link, and a link to nothing is refused") {
  const test::TemporaryFolder folder;
  fs::create_directory(folder.path() / "sub");
  put(folder.path() / "sub/real", "old");
  fs::create_symlink("sub/real", folder.path() / "link");
  put(folder.path() / "link", "new");
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(text_of(folder.path() / "sub/real") == "new");
  fs::create_symlink("nothing", folder.path() / "dangling");
  CHECK(test::error_of([&] { put(folder.path() / "dangling", "x"); }).exit() == base::Exit::usage);
  CHECK(entries(folder.path()) == 3);
}

TEST_CASE("temporary files that were not committed can be removed at once") {
  const test::TemporaryFolder folder;
  put(folder.path() / "done", "1");
  const base::AtomicFile one(folder.path() / "one");
  const base::AtomicFile two(folder.path() / "two");
  CHECK(entries(folder.path()) == 3);
  base::remove_temporary_files();
  CHECK(entries(folder.path()) == 1);
  CHECK(text_of(folder.path() / "done") == "1");
}

TEST_CASE("what is there, what is not, and what cannot be told") {
  const test::TemporaryFolder folder;
  test::write_file(folder.path() / "file", "x");
  CHECK(base::is_there(folder.path() / "file"));
  CHECK(base::is_there(folder.path()));
  CHECK_FALSE(base::is_there(folder.path() / "none"));
  CHECK_FALSE(base::is_there(folder.path() / "none/below"));
  CHECK_FALSE(base::is_there(folder.path() / "file/below"));
  fs::create_symlink("file", folder.path() / "good");
  CHECK(base::is_there(folder.path() / "good"));
  fs::create_symlink("none", folder.path() / "dangling");
  fs::create_symlink("loop", folder.path() / "loop");
  for (const auto& [name, why] : {std::pair("dangling", "No such file or directory"),
                                  std::pair("loop", "Too many levels of symbolic links")}) {
    const base::Error error = test::error_of([&] { base::is_there(folder.path() / name); });
    CHECK(error.exit() == base::Exit::usage);
    CHECK(error.text().where == (folder.path() / name).string());
    CHECK(error.text().why == why);
  }
}

TEST_CASE("a FIFO is refused at once") {
  const test::TemporaryFolder folder;
  const fs::path fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(test::error_of([&] { base::read_text(fifo); }).text().what == "not a regular file");
  CHECK(test::error_of([&] { const base::MappedFile map(fifo); }).text().what == "not a regular file");
}
