//! How each stack is built: [`Recipe`], one per name, from a package of the registry or a folder
//! that the user names to the files that are kept.

use std::path::Path;

use sealane_lab_model::error::Error;

/// Everything that there is to know about building one stack.
pub(super) struct Recipe {
    /// The stack's name on the command line.
    pub(super) name: &'static str,
    /// The library, as it is loaded.
    pub(super) library: &'static str,
    /// Where the sources come from.
    pub(super) source: Source,
    /// What is kept, relative to the build's folder; nothing where the build installs.
    pub(super) kept: &'static [&'static str],
    /// Whose make it is.
    pub(super) maker: Maker,
    /// Whether `include` is kept, for a stack that needs this one.
    pub(super) headers: bool,
}

/// Where sources come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A folder that the user names: no package of the registry carries them.
    Folder {
        /// What they are, for people.
        what: &'static str,
        /// A file that tells it.
        file: &'static str,
        /// What stands there.
        text: &'static str,
    },
    /// A package of cargo's registry.
    Package {
        /// The package's name.
        name: &'static str,
        /// The stack's version, and no other.
        version: &'static str,
        /// The folder of the sources in it.
        folder: &'static str,
    },
}

impl Source {
    /// Sees that `folder` holds what it was named for.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn check(self, folder: &Path) -> Result<(), Error> {
        let Self::Folder { what, file, text } = self else { return Ok(()) };
        let path = folder.join(file);
        let found = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        if found.contains(text) {
            return Ok(());
        }
        let path = path.display();
        Err(Error::Unsupported(format!("{path} does not say {text}: it takes {what}")))
    }
}

/// What turns sources into libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// CMake, with one target and settings of its own.
    CMake {
        /// What is built.
        target: &'static str,
        /// `-D` settings beside those that all have.
        settings: &'static [&'static str],
    },
    /// CMake, with settings of its own, to what it installs: MongoDB's driver, a user of TLS
    /// stacks and none itself.
    Installed {
        /// `-D` settings beside those that all have.
        settings: &'static [&'static str],
    },
    /// OpenSSL's own scripts; the packages of 3.4 and later are cut down, see [`EXPORTS`].
    OpenSsl { cut_down: bool },
    /// OpenSSL's scripts before 1.1.0, which build among the sources: in a copy.
    OldOpenSsl,
}

/// A program that a step needs, and the Debian package that brings it.
pub(super) struct Tool {
    pub(super) program: &'static str,
    pub(super) package: &'static str,
}

/// The linker's list of the names in one of OpenSSL's own lists, one name a line.
pub(super) fn exports(list: &str) -> String {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let names: String = names.map(|name| format!("    {name};\n")).collect();
    format!("{{\n  global:\n{names}  local: *;\n}};\n")
}

/// One command of a build.
pub(super) struct Step {
    /// What it does, for people.
    pub(super) what: &'static str,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// How far it is can be told from what it prints.
    pub(super) progress: Progress,
}

/// How a step tells how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// By `[done/all]`, as ninja writes it.
    Ninja,
    /// The step does not tell.
    None,
    /// By lines that compile something; the second field counts them all, beforehand.
    Objects,
}

/// The folders of one build.
pub(super) struct Layout<'a> {
    /// The unpacked sources.
    pub(super) sources: &'a Path,
    /// Where it is built.
    pub(super) work: &'a Path,
    /// Where what is kept is laid.
    pub(super) out: &'a Path,
    /// Where it will lie.
    pub(super) target: &'a Path,
    /// Compilers at once.
    pub(super) jobs: usize,
}

impl Recipe {
    /// The one of that name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// The programs that its steps need.
    pub(super) fn tools(&self) -> Vec<Tool> {
        let tool = |program, package| Tool { program, package };
        let mut tools = vec![tool("cargo", "cargo"), tool("cc", "gcc")];
        match self.maker {
            Maker::CMake { .. } | Maker::Installed { .. } => tools.extend([
                tool("c++", "g++"),
                tool("cmake", "cmake"),
                tool("ninja", "ninja-build"),
            ]),
            Maker::OpenSsl { .. } => tools.extend([tool("make", "make"), tool("perl", "perl")]),
            // Asio's driver is what it is checked with.
            Maker::OldOpenSsl => {
                tools.extend([tool("g++", "g++"), tool("make", "make"), tool("perl", "perl")]);
            }
        }
        tools
    }

    /// The commands, in order; each runs in the build's folder.
    pub(super) fn steps(&self, layout: &Layout<'_>) -> Vec<Step> {
        match self.maker {
            Maker::CMake { target, settings } => cmake(layout, target, settings),
            Maker::Installed { settings } => {
                let mut steps = cmake(layout, "all", settings);
                let mut install = words(&["cmake", "--install", ".", "--prefix"]);
                install.push(layout.out.display().to_string());
                steps.push(Step { what: "install", command: install, progress: Progress::None });
                steps
            }
            Maker::OldOpenSsl => old_openssl(layout),
            Maker::OpenSsl { cut_down } => openssl(layout, cut_down, self.kept),
        }
    }

    /// Whether its package lacks what makes [`EXPORTS`].
    pub(super) fn lacks_exports(&self) -> bool {
        self.maker == Maker::OpenSsl { cut_down: true }
    }

    /// One line for `build.txt`: where it came from and how it was configured.
    pub(super) fn note(&self) -> String {
        let how = match self.maker {
            Maker::CMake { settings, .. } | Maker::Installed { settings } => {
                format!("cmake {BUILD_TYPE} {}", settings.join(" "))
            }
            Maker::OldOpenSsl => format!("config {}", OLD_OPENSSL_OPTIONS.join(" ")),
            Maker::OpenSsl { .. } => format!("config {}", OPENSSL_OPTIONS.join(" ")),
        };
        let from = match self.source {
            Source::Folder { what, .. } => format!("{what}, of a folder"),
            Source::Package { name, version, .. } => format!("{name} {version}"),
        };
        format!("{from}; {}", how.trim())
    }
}

fn openssl(layout: &Layout<'_>, cut_down: bool, kept: &[&str]) -> Vec<Step> {
    let target = layout.target.display();
    let mut configure = words(&["sh"]);
    configure.push(layout.sources.join("config").display().to_string());
    configure.push(format!("--prefix={target}"));
    configure.push(format!("--openssldir={target}/ssl"));
    // So that this libssl finds this libcrypto wherever it is loaded from.
    configure.push("-Wl,-rpath,$(LIBRPATH)".to_owned());
    configure.extend(words(&OPENSSL_OPTIONS));
    let mut make = words(&["make"]);
    if cut_down {
        configure.push(NO_LEGACY.to_owned());
        for (exports, _) in EXPORTS {
            // As it lies there, whatever it would be made from.
            make.extend(words(&["-o", exports]));
        }
    }
    let mut generate = make.clone();
    generate.push("build_generated".to_owned());
    let mut compile = make;
    compile.push(format!("-j{}", layout.jobs));
    let mut steps = vec![
        Step { what: "configure", command: configure, progress: Progress::None },
        Step { what: "generate", command: generate, progress: Progress::None },
    ];
    // The two libraries alone: no static ones, programs, modules or pages. One after the other,
    // because 1.1.1 lets two rules make the same link when libssl asks for libcrypto meanwhile.
    for (what, library) in
        ["compile libcrypto", "compile libssl"].into_iter().zip(kept.iter().rev())
    {
        let command = [compile.clone(), words(&[library])].concat();
        steps.push(Step { what, command, progress: Progress::Objects });
    }
    steps
}

/// The two libraries, one object after the other: its Makefiles do not say what needs what.
fn old_openssl(layout: &Layout<'_>) -> Vec<Step> {
    let target = layout.target.display();
    let mut configure = words(&["sh", "./config"]);
    configure.extend([format!("--prefix={target}"), format!("--openssldir={target}/ssl")]);
    configure.push(format!("-Wl,-rpath,{target}/lib"));
    configure.extend(words(&OLD_OPENSSL_OPTIONS));
    let step =
        |what, words_: &[&str]| Step { what, command: words(words_), progress: Progress::None };
    vec![
        Step { what: "configure", command: configure, progress: Progress::None },
        step("find what needs what", &["make", "depend"]),
        step("compile", &["make", "build_libs"]),
    ]
}

fn cmake(layout: &Layout<'_>, target: &str, settings: &[&str]) -> Vec<Step> {
    let mut configure = words(&["cmake", "-G", "Ninja", "-S"]);
    configure.push(layout.sources.display().to_string());
    configure.extend(words(&["-B", ".", BUILD_TYPE, "-DBUILD_SHARED_LIBS=ON"]));
    // So that a library finds the libcrypto that lies beside it.
    configure
        .extend(words(&["-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN"]));
    configure.extend(words(settings));
    let jobs = layout.jobs.to_string();
    vec![
        Step { what: "configure", command: configure, progress: Progress::None },
        Step {
            what: "compile",
            command: words(&["ninja", "-j", &jobs, target]),
            progress: Progress::Ninja,
        },
    ]
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// With symbols, so that `count` can name functions.
const BUILD_TYPE: &str = "-DCMAKE_BUILD_TYPE=RelWithDebInfo";
const OLD_OPENSSL_OPTIONS: [&str; 2] = ["shared", "-g"];
const OPENSSL_OPTIONS: [&str; 4] = ["--libdir=lib", "shared", "no-tests", "-g"];

/// The packages of 3.4 and later lack what the provider of old ciphers is generated from.
const NO_LEGACY: &str = "no-legacy";

/// What a library lets others see, and the list it is made from. The script that makes it is the
/// other thing that those packages lack.
pub(super) const EXPORTS: [(&str, &str); 2] =
    [("libcrypto.ld", "util/libcrypto.num"), ("libssl.ld", "util/libssl.num")];

/// AWS-LC's jitter entropy is gathered once at a thread's start, for 25 ms, or minutes under
/// valgrind: it has no part in a handshake, and `count` could not run with it.
const AWS_LC: Maker = Maker::CMake {
    target: "ssl",
    settings: &[
        "-DBUILD_TESTING=OFF",
        "-DBUILD_TOOL=OFF",
        "-DDISABLE_CPU_JITTER_ENTROPY=ON",
        "-DDISABLE_GO=ON",
        "-DDISABLE_PERL=ON",
        "-DENABLE_SOURCE_MODIFICATION=OFF",
    ],
};
const BORINGSSL: Maker = Maker::CMake { target: "ssl", settings: &["-DBUILD_TESTING=OFF"] };

/// Without a version in the names of its files, so that each finds the other.
const LIBRESSL: Maker = Maker::CMake {
    target: "ssl",
    settings: &[
        "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
        "-DLIBRESSL_APPS=OFF",
        "-DLIBRESSL_TESTS=OFF",
    ],
};
/// With TLS, and nothing else that it can do without.
const MONGOC: Maker = Maker::Installed {
    settings: &[
        "-DENABLE_CLIENT_SIDE_ENCRYPTION=OFF",
        "-DENABLE_EXAMPLES=OFF",
        "-DENABLE_ICU=OFF",
        "-DENABLE_MONGODB_AWS_AUTH=OFF",
        "-DENABLE_SASL=OFF",
        "-DENABLE_SNAPPY=OFF",
        "-DENABLE_SSL=OPENSSL",
        "-DENABLE_STATIC=OFF",
        "-DENABLE_TESTS=OFF",
        "-DENABLE_UNINSTALL=OFF",
        "-DENABLE_ZLIB=OFF",
        "-DENABLE_ZSTD=OFF",
    ],
};

const fn openssl_of(
    name: &'static str,
    version: &'static str,
    kept: &'static [&'static str; 2],
    cut_down: bool,
) -> Recipe {
    Recipe {
        name,
        library: kept[0],
        source: Source::Package { name: "openssl-src", version, folder: "openssl" },
        kept,
        maker: Maker::OpenSsl { cut_down },
        headers: false,
    }
}

/// Every stack that can be built, the most wanted first.
pub(super) static RECIPES: [Recipe; 10] = [
    openssl_of("openssl@3.0", "300.0.13+3.0.8", &["libssl.so.3", "libcrypto.so.3"], false),
    openssl_of("openssl@3.5", "300.5.5+3.5.5", &["libssl.so.3", "libcrypto.so.3"], true),
    openssl_of("openssl@4.0", "400.0.2+4.0.3", &["libssl.so.4", "libcrypto.so.4"], true),
    Recipe {
        name: "aws-lc",
        library: "libssl.so",
        source: Source::Package { name: "aws-lc-sys", version: "0.47.0", folder: "aws-lc" },
        kept: &["ssl/libssl.so", "crypto/libcrypto.so"],
        maker: AWS_LC,
        headers: true,
    },
    Recipe {
        name: "boringssl",
        library: "libssl.so",
        source: Source::Package { name: "boring-sys", version: "5.4.0", folder: "deps/boringssl" },
        kept: &["libssl.so", "libcrypto.so"],
        maker: BORINGSSL,
        headers: true,
    },
    openssl_of("openssl@3.4", "300.4.2+3.4.1", &["libssl.so.3", "libcrypto.so.3"], true),
    openssl_of("openssl@1.1.1", "111.28.2+1.1.1w", &["libssl.so.1.1", "libcrypto.so.1.1"], false),
    Recipe {
        name: "openssl@1.0.2",
        library: "libssl.so.1.0.0",
        source: Source::Folder {
            what: "the source of OpenSSL 1.0.2",
            file: "crypto/opensslv.h",
            text: "OpenSSL 1.0.2",
        },
        kept: &["libssl.so.1.0.0", "libcrypto.so.1.0.0"],
        maker: Maker::OldOpenSsl,
        headers: true,
    },
    Recipe {
        name: "libressl",
        library: "libssl.so",
        source: Source::Folder {
            what: "a release of LibreSSL",
            file: "include/openssl/opensslv.h",
            text: "LIBRESSL_VERSION_TEXT",
        },
        kept: &["ssl/libssl.so", "crypto/libcrypto.so"],
        maker: LIBRESSL,
        headers: true,
    },
    Recipe {
        name: LIBMONGOC,
        library: "libmongoc-1.0.so",
        source: Source::Folder {
            what: "the source of mongo-c-driver 1.30",
            file: "VERSION_CURRENT",
            text: "1.30.",
        },
        kept: &[],
        maker: MONGOC,
        headers: false,
    },
];

/// MongoDB's driver after its remedy: Debian 12 has one from before it.
pub(in crate::inventory) const LIBMONGOC: &str = "libmongoc@1.30";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_becomes_the_linkers() {
        let list = "SSL_new\t1\t3_0_0\tEXIST::FUNCTION:\nSSL_free\t2\t3_0_0\tEXIST::FUNCTION:\n";
        let wanted = "{\n  global:\n    SSL_new;\n    SSL_free;\n  local: *;\n};\n";
        assert_eq!(exports(list), wanted);
    }

    #[test]
    fn a_folder_must_hold_what_it_was_named_for() {
        let folder = tempfile::tempdir().unwrap();
        let source = Recipe::find(LIBMONGOC).unwrap().source;
        assert!(source.check(folder.path()).unwrap_err().to_string().contains("VERSION_CURRENT"));
        let file = folder.path().join("VERSION_CURRENT");
        std::fs::write(&file, "1.23.1").unwrap();
        let error = source.check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("does not say 1.30."), "{error}");
        std::fs::write(&file, "1.30.4").unwrap();
        source.check(folder.path()).unwrap();
    }

    #[test]
    fn every_recipe_has_its_tools_and_keeps_the_library_it_names() {
        for recipe in &RECIPES {
            let installs = matches!(recipe.maker, Maker::Installed { .. });
            assert!(installs || recipe.kept.iter().any(|kept| kept.ends_with(recipe.library)));
            assert!(recipe.tools().iter().any(|tool| tool.program == "cargo"));
        }
    }
}
