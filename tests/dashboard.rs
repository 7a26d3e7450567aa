//! The dashboard in a real browser, against a real server with real nodes: viewing, clicking, typing, drag and drop.

mod harness;

#[path = "dashboard/forms.rs"]
mod forms;
#[path = "dashboard/hostile.rs"]
mod hostile;
#[path = "dashboard/login.rs"]
mod login;
#[path = "dashboard/many.rs"]
mod many;
#[path = "dashboard/navigation.rs"]
mod navigation;
#[path = "dashboard/shares.rs"]
mod shares;
#[path = "dashboard/tabs.rs"]
mod tabs;
#[path = "dashboard/tutorial.rs"]
mod tutorial;
