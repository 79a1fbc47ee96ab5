"""Names by which files are known that an agent would not read."""

from __future__ import annotations

# fmt: off
# Extensions of files that are no text.
BINARY = frozenset({
    "7z", "a", "aac", "ai", "avi", "avif", "bin", "blend", "bmp", "bz2", "class", "cur", "dat", "db", "deb",
    "dll", "dmg", "doc", "docx", "dylib", "eot", "eps", "exe", "flac", "gif", "gz", "heic", "icns", "ico",
    "img", "iso", "jar", "jks", "jpeg", "jpg", "keystore", "lib", "lz4", "lzma", "m4a", "mkv", "mo", "mov",
    "mp3", "mp4", "mpeg", "npy", "npz", "o", "obj", "odt", "ogg", "onnx", "otf", "parquet", "pb", "pdf",
    "pickle", "pkl", "png", "pptx", "psd", "pt", "pth", "pyc", "pyd", "pyo", "rar", "rpm", "safetensors",
    "so", "sqlite", "sqlite3", "swf", "tar", "tbz2", "tga", "tgz", "tif", "tiff", "ttf", "wasm", "wav",
    "webm", "webp", "whl", "wmv", "woff", "woff2", "xls", "xlsx", "xz", "zip", "zst",
})

# Lock files of package managers, in lower case.
LOCKS = frozenset({
    "bun.lock", "bun.lockb", "cargo.lock", "composer.lock", "conda-lock.yml", "deno.lock", "flake.lock",
    "gemfile.lock", "go.sum", "go.work.sum", "gradle.lockfile", "mix.lock", "module.bazel.lock",
    "npm-shrinkwrap.json", "package-lock.json", "packages.lock.json", "pdm.lock", "pipfile.lock", "pixi.lock",
    "pnpm-lock.yaml", "podfile.lock", "poetry.lock", "pubspec.lock", "uv.lock", "yarn.lock",
})

# Folders that hold the code of others.
VENDORED = frozenset({
    ".yarn", "3rdparty", "Carthage", "Godeps", "Pods", "_vendor", "bower_components", "deps", "dist",
    "extern", "external", "node_modules", "site-packages", "third-party", "third_party", "vendor", "vendored",
})

# How names of generated files end, in lower case.
GENERATED = (
    ".css.map", ".designer.cs", ".g.cs", ".g.dart", ".ipynb", ".js.map", ".pb.cc", ".pb.go", ".pb.gw.go",
    ".pb.h", ".snap", "_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi",
)

# How names of minified files end, in lower case.
MINIFIED = (
    "-min.css", "-min.js", "-min.mjs", ".min.css", ".min.js", ".min.mjs",
)
