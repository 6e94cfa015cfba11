use std::os::unix::fs::PermissionsExt;

use paceline_testkit::scratch_dir;

#[test]
fn a_scratch_folder_is_private_and_gone_with_its_handle() {
    let folder = scratch_dir("kit");
    let path = folder.path().to_owned();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::create_dir(folder.join("inner")).unwrap();
    std::fs::write(folder.join("inner/file"), "x").unwrap();
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn two_scratch_folders_of_one_label_differ() {
    assert_ne!(scratch_dir("kit").path(), scratch_dir("kit").path());
}
