//! Workload templates, and services with their sandboxes.

use std::time::Duration;

use roadstead_proto::api::v1;
use roadstead_proto::role::Role;
use roadstead_store::mutation::{ByName, Lock, Locks, Reads, Write};
use roadstead_store::read::{After, Listed, Page, Reader};
use roadstead_store::row;

use crate::locks::until_it_waits;
use crate::world::{World, by_name, command, effect, in_workspace, next, now, pairs, sandbox, service, template};

const STRANGER: Reader<'static> = Reader { subject: Some("eve") };

fn page(most: u32) -> Page {
    Page { labels: row::Pairs::new(), after: After::default(), most }
}

/// Names, page by page, one item a page.
async fn names(mut read: impl AsyncFnMut(Page) -> Vec<(String, After)>) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), After::default());
    while let Some((name, last)) = read(Page { after: after.clone(), ..page(1) }).await.pop() {
        names.push(name);
        after = last;
    }
    names
}

fn of_template(row: row::WorkloadTemplate) -> (String, After) {
    let row::WorkloadTemplate { created_at, name, workspace_name, id, .. } = row;
    (format!("{workspace_name}/{name}"), After { created_at, name, workspace: workspace_name, id })
}

fn of_service(row: row::ServiceEndpoint) -> (String, After) {
    let (name, workspace) = (row.name(), row.workspace_name);
    (format!("{workspace}/{name}"), After { created_at: row.created_at, name, workspace, id: row.id })
}

#[tokio::test]
async fn a_template_and_a_service_are_read_as_they_were_written_and_leave_no_mark() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let w = world.workspace("w").await;
    let t = template(&w, "t");
    assert!(world.write(vec![Write::InsertTemplate(t.clone())]).await.is_empty());
    assert_eq!(watch.template("w", "t", Reader::ADMIN).await.unwrap().found.as_ref(), Some(&t));
    assert_eq!(watch.template("w", "no", Reader::ADMIN).await.unwrap().found, None);

    let provenance = v1::SandboxWorkloadTemplateProvenance { name: "t".into(), resource_version: "1".into() };
    let s = row::Sandbox { created_from: Some(provenance), ..sandbox(&w, "s") };
    world.write(vec![Write::InsertSandbox(s.clone())]).await;
    assert_eq!(watch.sandbox("w", "s", Reader::ADMIN).await.unwrap().found.as_ref(), Some(&s));
    let s = next(&s, |row| row.generation = 2);
    world.write(vec![Write::UpdateSandbox(s.clone())]).await;
    assert_eq!(world.load(s.id).await.as_ref(), Some(&s));

    let web = service(&s, "web");
    assert!(world.write(vec![Write::InsertService(web.clone())]).await.is_empty());
    let changed = row::ServiceEndpoint {
        target_port: 1,
        authorization_mode: v1::ServiceAuthorizationMode::BearerPassthrough,
        resource_version: 2,
        ..web
    };
    assert!(world.write(vec![Write::UpdateService(changed.clone())]).await.is_empty());
    assert_eq!(watch.service("w", "s", "web", Reader::ADMIN).await.unwrap().found.as_ref(), Some(&changed));
    assert_eq!(watch.service("w", "s", "", Reader::ADMIN).await.unwrap().found, None);
}

#[tokio::test]
async fn services_go_with_their_sandbox_and_a_template_stays_without_what_was_made_from_it() {
    let mut world = World::new().await;
    let w = world.workspace("w").await;
    let (s, other) = (world.sandbox(&w, "s").await, world.sandbox(&w, "other").await);
    let rows = [service(&s, ""), service(&s, "web"), service(&other, "web")];
    world.write(rows.into_iter().map(Write::InsertService).collect()).await;
    world.write(vec![Write::DeleteSandbox(s.id)]).await;
    assert_eq!(world.sql.value("select string_agg(name, ' ') from roadstead.service_endpoint").await, "other--web");
}

#[tokio::test]
async fn pages_of_templates_and_services_follow_the_key() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let (v, w) = (world.workspace("v").await, world.workspace("w").await);
    let (early, late) = (now() - Duration::from_secs(60), now());
    for (workspace, name, created_at, label) in
        [(&w, "c", early, "x"), (&w, "b", late, "y"), (&w, "a", late, "x"), (&v, "a", late, "x"), (&v, "z", early, "x")]
    {
        let labels = pairs(&[("app", label)]);
        let s = sandbox(workspace, name);
        world
            .write(vec![
                Write::InsertTemplate(row::WorkloadTemplate { created_at, labels, ..template(workspace, name) }),
                Write::InsertSandbox(s.clone()),
                Write::InsertService(row::ServiceEndpoint { created_at, ..service(&s, "") }),
                Write::InsertService(row::ServiceEndpoint { created_at, ..service(&s, "x") }),
            ])
            .await;
    }
    let of = |listed: Listed<row::WorkloadTemplate>| listed.items.into_iter().map(of_template).collect();
    let in_w = names(async |page| of(watch.templates("w", Reader::ADMIN, page).await.unwrap().found)).await;
    assert_eq!(in_w, ["w/c", "w/a", "w/b"]);
    let selected = Page { labels: pairs(&[("app", "x")]), ..page(9) };
    let found: Vec<_> = of(watch.templates("w", Reader::ADMIN, selected.clone()).await.unwrap().found);
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["w/c", "w/a"]);
    assert_eq!(watch.templates_everywhere(selected).await.unwrap().items.len(), 4);
    let everywhere = names(async |page| of(watch.templates_everywhere(page).await.unwrap())).await;
    assert_eq!(everywhere, ["w/c", "v/z", "v/a", "w/a", "w/b"]);

    let of = |listed: Listed<row::ServiceEndpoint>| listed.items.into_iter().map(of_service).collect();
    let in_w = names(async |page| of(watch.services("w", Reader::ADMIN, page).await.unwrap().found)).await;
    assert_eq!(in_w, ["w/c", "w/c--x", "w/a", "w/a--x", "w/b", "w/b--x"]);
    let of_one = async |page| of(watch.sandbox_services("w", "b", Reader::ADMIN, page).await.unwrap().found.unwrap());
    assert_eq!(names(of_one).await, ["w/b", "w/b--x"]);
    let everywhere = names(async |page| of(watch.services_everywhere(page).await.unwrap())).await;
    assert_eq!(everywhere.len(), 10);
    assert_eq!(everywhere[..4], ["w/c", "w/c--x", "v/z", "v/z--x"]);
    assert_eq!(watch.sandbox_services("w", "no", Reader::ADMIN, page(9)).await.unwrap().found, None);
}

#[tokio::test]
async fn a_stranger_sees_no_template_and_no_service() {
    let world = World::new().await;
    let watch = world.role(Role::Watch);
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    world.write(vec![Write::InsertTemplate(template(&w, "t")), Write::InsertService(service(&s, "web"))]).await;
    for (reader, sees) in [(STRANGER, false), (Reader::ADMIN, true)] {
        assert_eq!(watch.template("w", "t", reader).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.templates("w", reader, page(9)).await.unwrap().found.items.len(), usize::from(sees));
        assert_eq!(watch.service("w", "s", "web", reader).await.unwrap().found.is_some(), sees);
        assert_eq!(watch.services("w", reader, page(9)).await.unwrap().found.items.len(), usize::from(sees));
        assert_eq!(watch.sandbox_services("w", "s", reader, page(9)).await.unwrap().found.is_some(), sees);
    }
}

#[tokio::test]
async fn a_template_that_a_creation_reads_is_not_deleted_meanwhile() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    let t = template(&w, "t");
    world.write(vec![Write::InsertTemplate(t.clone())]).await;
    let locks = |lock| Locks { template: Some(ByName { name: "t".into(), lock }), ..in_workspace("w", Lock::Share) };
    let creation = world.first(&command(), &locks(Lock::Share)).await.unwrap();
    let another = world.first(&command(), &locks(Lock::Share)).await.unwrap();
    another.abandon().await;
    let (store, update) = (world.store.clone(), locks(Lock::Update));
    let deletion = tokio::spawn(async move { store.first_flight(&command(), &update).await });
    until_it_waits(&world).await;
    let s = sandbox(&w, "s");
    creation.conclude(effect(vec![Write::InsertSandbox(s)])).await.unwrap();
    let deletion = deletion.await.unwrap().unwrap();
    assert!(deletion.loaded().template.is_some());
    deletion.conclude(effect(vec![Write::DeleteTemplate(t.id)])).await.unwrap();
    let after = world.first(&command(), &locks(Lock::Share)).await.unwrap();
    assert!(after.loaded().template.is_none());
    after.abandon().await;
}

#[tokio::test]
async fn whoever_holds_a_sandbox_sees_its_services_as_they_are() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    let s = world.sandbox(&w, "s").await;
    let locks = Locks { reads: Reads { services: true, ..Reads::default() }, ..by_name("w", "s") };
    let first = world.first(&command(), &locks).await.unwrap();
    let (store, waiting) = (world.store.clone(), locks.clone());
    let second = tokio::spawn(async move { store.first_flight(&command(), &waiting).await });
    until_it_waits(&world).await;
    first.conclude(effect(vec![Write::InsertService(service(&s, "web"))])).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.loaded().services.iter().map(|row| row.service.as_str()).collect::<Vec<_>>(), ["web"]);
    second.abandon().await;
}
