"""Drives a Wagtail site: `make`, `write N`, `migrate N`. Prints a line for each thing that it does, with what came of it.

APP_FOLDER holds the site and its log, DATABASE_URL names its database.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

SITE = Path(os.environ["APP_FOLDER"]) / "site"

SETTINGS = """
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": %r, "PORT": %r, "USER": %r, "PASSWORD": %r, "NAME": %r, "OPTIONS": %r,
}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGGING = {
    "version": 1, "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%%(levelname)s %%(name)s %%(message)s"}},
    "handlers": {"file": {"class": "logging.FileHandler", "filename": %r, "formatter": "line"}},
    "root": {"handlers": ["file"], "level": "INFO"},
    "loggers": {"django": {"handlers": ["file"], "propagate": False}},
}
"""

MODELS = [
    """
class HomePage(Page):
    subtitle = models.CharField(max_length=80, default="none")


class Note(models.Model):
    title = models.CharField(max_length=40, unique=True)
    body = models.TextField(blank=True)
    made = models.DateTimeField(auto_now_add=True)
    page = models.ForeignKey(Page, on_delete=models.CASCADE, related_name="notes")
""",
    """
class HomePage(Page):
    lead = models.TextField(default="none")


class Remark(models.Model):
    title = models.CharField(max_length=60)
    text = models.TextField(blank=True)
    made = models.DateTimeField(auto_now_add=True)
    page = models.ForeignKey(Page, on_delete=models.CASCADE, related_name="notes")
    count = models.IntegerField(default=0)
""",
    """
class HomePage(Page):
    pass
""",
]

MIGRATIONS = [
    """
        migrations.AddField("HomePage", "subtitle", models.CharField(max_length=80, default="none")),
        migrations.CreateModel("Note", [
            ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
            ("title", models.CharField(max_length=40, unique=True)),
            ("body", models.TextField(blank=True)),
            ("made", models.DateTimeField(auto_now_add=True)),
            ("page", models.ForeignKey("wagtailcore.Page", models.CASCADE, related_name="notes")),
        ]),
""",
    """
        migrations.RenameField("HomePage", "subtitle", "lead"),
        migrations.AlterField("HomePage", "lead", models.TextField(default="none")),
        migrations.RenameModel("Note", "Remark"),
        migrations.RenameField("Remark", "body", "text"),
        migrations.AddField("Remark", "count", models.IntegerField(default=0)),
        migrations.AlterField("Remark", "title", models.CharField(max_length=60)),
        migrations.AddIndex("Remark", models.Index(fields=["count"], name="remark_count")),
        migrations.RunPython(lambda apps, _: apps.get_model("home", "Remark").objects.update(count=models.F("id") * 2)),
""",
    """
        migrations.RemoveField("HomePage", "lead"),
        migrations.DeleteModel("Remark"),
""",
]


def stage(number):
    """The models of a stage, and the migration to it."""
    head = "from django.db import models\n\nfrom wagtail.models import Page\n\n"
    (SITE / "home/models.py").write_text(head + MODELS[number])
    before = "0002_create_homepage" if number == 0 else f"000{number + 2}_stage"
    depends = f'[("home", "{before}"), ("wagtailcore", "0040_page_draft_title")]'
    (SITE / f"home/migrations/000{number + 3}_stage.py").write_text(
        f"from django.db import migrations, models\n\n\nclass Migration(migrations.Migration):\n"
        f"    dependencies = {depends}\n    operations = [{MIGRATIONS[number]}    ]\n"
    )
    manage("migrate", "--verbosity", "0")
    print(f"migrate {number}: done")


def manage(*arguments):
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=SITE, check=True)


def make():
    SITE.mkdir()
    script = Path(sys.executable).parent / "wagtail"
    subprocess.run([script, "start", "shopsite", SITE], check=True, stdout=subprocess.DEVNULL)
    url = urlsplit(os.environ["DATABASE_URL"])
    host = unquote(url.hostname or "")
    options = {name: values[0] for name, values in parse_qs(url.query).items() if name == "sslmode"}
    log = str(Path(os.environ["APP_FOLDER"]) / "app.log")
    database = (host, url.port or 5432, url.username, unquote(url.password or ""), url.path[1:], options)
    (SITE / "shopsite/settings/local.py").write_text(SETTINGS % (*database, log))
    stage(0)
    os.environ["DJANGO_SUPERUSER_PASSWORD"] = "editor"
    manage("createsuperuser", "--no-input", "--username", "editor", "--email", "editor@localhost")


class Editor:
    """A browser of one who is logged in."""

    def __init__(self):
        from django.test import Client

        self.client = Client(raise_request_exception=False, SERVER_NAME="localhost")

    def ask(self, what, path, data=None):
        answer = self.client.get(path) if data is None else self.client.post(path, data)
        print(f"{what}: {answer.status_code}")
        return answer


def page_form(title, slug, publish=True):
    formset = {f"{name}-{part}": value for name in ("comments",) for part, value in
               (("TOTAL_FORMS", 0), ("INITIAL_FORMS", 0), ("MIN_NUM_FORMS", 0), ("MAX_NUM_FORMS", ""))}
    form = {"title": title, "slug": slug, "seo_title": "", "search_description": "", "subtitle": "a subtitle", "lead": "a lead", **formset}
    return form | ({"action-publish": "1"} if publish else {})


def write(number):
    sys.path.insert(0, str(SITE))
    os.chdir(SITE)
    os.environ["DJANGO_SETTINGS_MODULE"] = "shopsite.settings.dev"
    import django

    django.setup()
    from django.contrib.auth.models import Group, User
    from django.db import transaction
    from django.db.models import F
    from home.models import HomePage
    from wagtail.models import Page

    editor = Editor()
    editor.ask("login page", "/admin/login/")
    editor.ask("login", "/admin/login/", {"username": "editor", "password": "editor"})
    home = HomePage.objects.first()
    for n in range(6):
        slug = f"page-{number}-{n}"
        editor.ask("create a page", f"/admin/pages/add/home/homepage/{home.id}/", page_form(f"Page {n} 'quoted' ☃", slug))
        page = HomePage.objects.get(slug=slug)
        editor.ask("edit it", f"/admin/pages/{page.id}/edit/", page_form("Edited", slug, publish=n % 2 == 0))
        editor.ask("see it", f"/{slug}/")
    pages = list(HomePage.objects.filter(slug__startswith=f"page-{number}-").order_by("path"))
    editor.ask("unpublish", f"/admin/pages/{pages[0].id}/unpublish/", {})
    editor.ask("not seen", f"/{pages[0].slug}/")
    editor.ask("move", f"/admin/pages/{pages[1].id}/move/{pages[2].id}/confirm/", {"next": "/admin/"})
    editor.ask("copy", f"/admin/pages/{pages[2].id}/copy/", {
        "new_title": "Copied", "new_slug": f"copied-{number}", "new_parent_page": home.id, "copy_subpages": "on", "publish_copies": "on"})
    editor.ask("delete", f"/admin/pages/{pages[2].id}/delete/", {"next": "/admin/"})
    editor.ask("redirect", "/admin/redirects/add/", {"old_path": f"/old-{number}/", "site": "", "is_permanent": "on", "redirect_link": "/"})
    editor.ask("redirected", f"/old-{number}/")
    editor.ask("history", f"/admin/pages/{pages[3].id}/history/")
    editor.ask("search", "/admin/pages/search/?q=Edited")
    editor.ask("dashboard", "/admin/")
    group = Group.objects.create(name=f"group {number}")
    users = [User(username=f"user-{number}-{n}", email=f"{n}@localhost") for n in range(50)]
    User.objects.bulk_create(users)
    group.user_set.add(*User.objects.filter(username__startswith=f"user-{number}-"))
    User.objects.filter(username__startswith=f"user-{number}-").update(first_name=F("username"), last_login=None)
    User.objects.filter(username__endswith="7").delete()
    with transaction.atomic():
        Page.objects.filter(depth__gt=2).update(search_description="within a transaction")
        group.delete()
    try:
        with transaction.atomic():
            User.objects.all().delete()
            raise LookupError
    except LookupError:
        print(f"rolled back: {User.objects.count()} users")
    notes(number, Page.objects.filter(slug__startswith=f"page-{number}-").order_by("id"))
    print(f"pages: {Page.objects.count()}, live {Page.objects.live().count()}, {[page.numchild for page in Page.objects.order_by('path')]}")


def notes(number, pages):
    """Rows of the site's own model, as long as it is there."""
    from home import models

    model = getattr(models, "Note", None) or getattr(models, "Remark", None)
    if model is None:
        return
    model.objects.bulk_create(model(title=f"note {number} {n}", page=pages[n % len(pages)]) for n in range(60))
    model.objects.filter(title__endswith="3").delete()
    for note in model.objects.order_by("-id")[:5]:
        note.title = f"changed {note.title}"
        note.save()
    pages[0].delete()
    print(f"notes: {model.objects.count()}")


STEPS = {"make": make, "write": write, "migrate": stage}
STEPS[sys.argv[1]](*map(int, sys.argv[2:]))
