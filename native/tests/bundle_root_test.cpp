#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/bundle_root.h"

namespace fs = std::filesystem;
using aima::base::BundleRoot;
using aima::base::find_bundle_root;

namespace {

/// A folder that goes away with the object; odd characters in its name on purpose.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "aima root:$ORIGIN-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = fs::canonical(name);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path file(const std::string& name) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << "x";
    return path / name;
  }
};

}  // namespace

TEST_CASE("a bundle's root is two levels above the engine") {
  const Folder folder;
  const fs::path engine = folder.file("b/libexec/aima-engine.real");
  const fs::path loader = folder.file("b/libexec/aima-engine");
  CHECK_FALSE(find_bundle_root(engine, loader).root.has_value());  // no manifest: a build tree
  folder.file("b/share/aima/manifest.json");
  const BundleRoot found = find_bundle_root(engine, loader);
  CHECK(found.root == folder.path / "b");
  CHECK(found.image == engine);
  CHECK(found.note.empty());
}

TEST_CASE("links and detours lead to the real place") {
  const Folder folder;
  folder.file("b/libexec/aima-engine.real");
  const fs::path loader = folder.file("b/libexec/aima-engine");
  folder.file("b/share/aima/manifest.json");
  fs::create_directory_symlink(folder.path / "b", folder.path / "link");
  CHECK(find_bundle_root(folder.path / "link/libexec/aima-engine.real", loader).root == folder.path / "b");
  CHECK(find_bundle_root(folder.path / "b/share/../libexec/aima-engine.real", loader).root ==
        folder.path / "b");
}

TEST_CASE("another loader than the bundle's own is said") {
  const Folder folder;
  const fs::path engine = folder.file("b/libexec/aima-engine.real");
  folder.file("b/share/aima/manifest.json");
  // A bundle without a loader of its own runs on the host's.
  CHECK(find_bundle_root(engine, engine).root == folder.path / "b");
  CHECK(find_bundle_root(engine, engine).note.empty());
  folder.file("b/libexec/aima-engine");
  const BundleRoot direct = find_bundle_root(engine, engine);
  CHECK(direct.root == folder.path / "b");
  CHECK(direct.note.find("not through bin/aima-engine") != std::string::npos);
  const BundleRoot unknown = find_bundle_root(engine, "");
  CHECK(unknown.note.find("an unknown loader") != std::string::npos);
}

TEST_CASE("elsewhere there is no bundle") {
  const Folder folder;
  const fs::path program = folder.file("bin/tests");
  folder.file("share/aima/manifest.json");
  const BundleRoot found = find_bundle_root(program, program);
  CHECK_FALSE(found.root.has_value());
  CHECK(found.image == program);
  CHECK(found.note.find("development build") != std::string::npos);
  CHECK(find_bundle_root("", program).image == program);
  CHECK(find_bundle_root("", "").image.empty());
  CHECK_FALSE(find_bundle_root(folder.path / "gone", folder.path / "gone").root.has_value());
}

TEST_CASE("this process is not in a bundle") {
  const BundleRoot& found = aima::base::bundle_root();
  CHECK_FALSE(found.root.has_value());
  CHECK(found.image == fs::read_symlink("/proc/self/exe"));
}
