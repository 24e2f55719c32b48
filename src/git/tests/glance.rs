//! The glance saves time and changes no answer: with many files and several threads the state is what `git status` says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use super::world::World;
use crate::git::glance;

/// Files enough for several threads to share them.
fn many() -> World {
    let world = World::new();
    for folder in 0..60 {
        for file in 0..40 {
            world.write(&format!("part-{}/sub-{folder}/f{file}.txt", folder % 5), &format!("{folder} {file}\n"));
        }
    }
    world.commit("many");
    world
}

/// What `git status` names, with untracked files one by one.
fn told_by_git(world: &World) -> BTreeSet<String> {
    let text = world.git(&["status", "--porcelain", "-z", "-uall", "--no-renames"]);
    text.split('\0').filter(|line| line.len() > 3).map(|line| line[3..].to_owned()).collect()
}

fn told(world: &World) -> BTreeSet<String> {
    world.repo().state(&[]).unwrap().paths().into_iter().collect()
}

/// Something that somebody does in a repository.
type Act = (&'static str, fn(&World));

#[test]
fn r_w1_among_many_files_each_difference_is_found() {
    let world = many();
    assert_eq!(told(&world), BTreeSet::new());
    let acts: [Act; 12] = [
        ("other content of the same length", |w| w.write("part-1/sub-1/f1.txt", "1 2\n")),
        ("gone", |w| fs::remove_file(w.root.join("part-2/sub-2/f2.txt")).unwrap()),
        ("a folder gone", |w| fs::remove_dir_all(w.root.join("part-3/sub-3")).unwrap()),
        ("new", |w| w.write("part-4/sub-4/new.txt", "n\n")),
        ("a new folder", |w| w.write("fresh/deep/new.txt", "n\n")),
        ("ignored", |w| w.write("part-0/sub-5/target/x", "n\n")),
        ("ignored by its name", |w| w.write("part-0/sub-5/x.log", "n\n")),
        ("staged", |w| {
            w.write("part-1/sub-6/f0.txt", "staged\n");
            w.git(&["add", "part-1/sub-6/f0.txt"]);
        }),
        ("a link for a file", |w| {
            fs::remove_file(w.root.join("part-2/sub-7/f0.txt")).unwrap();
            symlink("f1.txt", w.root.join("part-2/sub-7/f0.txt")).unwrap();
        }),
        ("a folder for a file", |w| {
            fs::remove_file(w.root.join("part-3/sub-8/f0.txt")).unwrap();
            w.write("part-3/sub-8/f0.txt/inside", "x\n");
        }),
        ("a link for a folder", |w| {
            fs::rename(w.root.join("part-4/sub-9"), w.root.join("moved")).unwrap();
            symlink("../moved", w.root.join("part-4/sub-9")).unwrap();
        }),
        ("a name with odd characters", |w| w.write("part-1/*[x]?.txt", "n\n")),
    ];
    for (what, act) in acts {
        act(&world);
        assert_eq!(told(&world), told_by_git(&world), "{what}");
    }
}

#[test]
fn r_w1_a_repository_inside_is_named_as_git_names_it() {
    let world = many();
    world.git(&["init", "-q", "part-1/inner"]);
    world.write("part-1/inner/file.txt", "x\n");
    assert_eq!(told(&world), BTreeSet::from(["part-1/inner/".to_owned()]));
}

#[test]
fn r_w1_thousands_of_new_files_are_all_named() {
    let world = many();
    for n in 0..1_500 {
        world.write(&format!("part-0/new-{n}.txt"), "n\n");
    }
    assert_eq!(told(&world), told_by_git(&world));
}

#[test]
fn a_glance_suspects_what_differs_and_nothing_else() {
    let world = many();
    let path = world.root.join(".git/index");
    // A file as young as the index is never believed.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    let suspects = || {
        let index = git2::Index::open(&path).unwrap();
        glance::suspects(&world.root, &index, glance::written_at(&path).unwrap())
    };
    assert_eq!(suspects(), Some(Vec::new()));
    world.write("part-1/sub-1/f1.txt", "other\n");
    world.write("fresh/new.txt", "n\n");
    let mut found = suspects().unwrap();
    found.sort();
    assert_eq!(found, [b"fresh".to_vec(), b"part-1/sub-1/f1.txt".to_vec()]);
    let earlier = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().append(true).open(&path).unwrap().set_modified(earlier).unwrap();
    assert_eq!(suspects(), None, "everything is younger: libgit2 looks at everything");
}
