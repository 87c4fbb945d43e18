package rest

import (
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

func describeTag(t service.Tag) api.Tag { return api.Tag{Name: t.Name, SHA: t.ID.String()} }

// afterTag is the cursor that continues after a tag.
func afterTag(t service.Tag) string { return afterName(tagCursor, refname.TagsPrefix+t.Name) }

// shortTag accepts full names of tags for short ones.
func shortTag(name string) string { return strings.TrimPrefix(name, refname.TagsPrefix) }

func (c *call) listTags(q api.ListTags) (api.TagList, error) {
	after, err := resumed(c, q.Cursor, func(cursor string) (string, error) { return namePosition(cursor, tagCursor) })
	if err != nil {
		return api.TagList{}, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	tags, err := c.Service.Tags(c.ctx, c.access, after, limit+1)
	if err != nil {
		return api.TagList{}, err
	}
	list := api.TagList{Tags: []api.TagItem{}}
	if len(tags) > limit {
		tags = tags[:limit]
		list.HasMore, list.NextCursor = true, c.issue(afterTag(tags[limit-1]))
	}
	for _, t := range tags {
		list.Tags = append(list.Tags, api.TagItem{Cursor: c.issue(afterTag(t)), Tag: describeTag(t)})
	}
	return list, nil
}

func (c *call) getTag(q api.GetTag) (api.TagInfo, error) {
	if q.Name == "" {
		return api.TagInfo{}, invalid("query parameter %q is missing", "name")
	}
	t, err := c.Service.Tag(c.ctx, c.access, shortTag(q.Name))
	return api.TagInfo{Tag: describeTag(t)}, err
}

func (c *call) createTag(q api.CreateTag) (api.CreatedTag, error) {
	ref := q.Ref
	switch {
	case q.Name == "":
		return api.CreatedTag{}, invalid("name is missing: it names the tag to create")
	case ref == "" && q.Target == "":
		return api.CreatedTag{}, invalid("ref is missing: it says what to tag")
	case ref == "":
		if _, err := object.ParseID(q.Target); err != nil {
			return api.CreatedTag{}, invalid("target %.80q is not a full commit id of 40 hexadecimal digits: send a revision as ref", q.Target)
		}
		ref = q.Target
	}
	name := shortTag(q.Name)
	created := func(id object.ID) api.CreatedTag {
		return api.CreatedTag{Name: name, SHA: id.String(), Message: "tag created"}
	}
	id, err := c.Service.CreateTag(c.ctx, c.access, repo.TagRequest{Name: name, Ref: ref, Record: record(c, created)})
	if err != nil {
		return api.CreatedTag{}, err
	}
	return created(id), nil
}

func (c *call) deleteTag(q api.DeleteTag) (api.DeletedTag, error) {
	name := shortTag(q.Name)
	if name == "" {
		return api.DeletedTag{}, invalid("name is missing: it names the tag to delete")
	}
	deleted := api.DeletedTag{Name: name, Message: "tag deleted"}
	c.keep(deleted)
	return deleted, c.Service.DeleteTag(c.ctx, c.access, name)
}
