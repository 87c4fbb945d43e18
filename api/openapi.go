package api

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of every route, in JSON. It is generated
// from the table of routes and from the types and comments of this package.
//
//go:embed openapi.json
var OpenAPI []byte
