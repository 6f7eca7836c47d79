# Cases of access.rego: an input, and what must be in the decision.
package crp.access_test

import rego.v1

asked(name, roles, action, labels) := {
	"subject": {"tenant": "acme", "name": name, "roles": roles},
	"action": action,
	"resource": {"tenant": "acme", "labels": labels},
}

cases := {
	"everybody reads what is public": {
		"input": asked("eve", [], "read", ["class:public"]),
		"want": {"allow": true, "redact": []},
	},
	"a role that nothing is granted to reads what is public": {
		"input": asked("gus", ["guest"], "read", ["class:public"]),
		"want": {"allow": true, "redact": []},
	},
	"what everybody reads stands for nothing else": {
		"input": asked("gus", ["guest"], "read", ["class:internal", "class:public"]),
		"want": {"allow": false},
	},
	"a reader reads what is public beside what is internal": {
		"input": asked("anna", ["reader"], "read", ["class:internal", "class:public"]),
		"want": {"allow": true, "redact": []},
	},
	"nobody without a role reads what is internal": {
		"input": asked("eve", [], "read", ["class:internal"]),
		"want": {"allow": false},
	},
	"a reader reads what is internal": {
		"input": asked("anna", ["reader"], "read", ["class:internal"]),
		"want": {"allow": true},
	},
	"each label must be granted": {
		"input": asked("anna", ["reader"], "read", ["class:internal", "class:secret"]),
		"want": {"allow": false, "reason": "a label is not granted to the subject"},
	},
	"a label that two roles are granted stands for no other": {
		"input": asked("rita", ["reader", "writer"], "read", ["class:internal", "class:secret"]),
		"want": {"allow": false},
	},
	"a reader does not write": {
		"input": asked("anna", ["reader"], "write", ["class:public"]),
		"want": {"allow": false},
	},
	"a writer writes and does not erase": {
		"input": asked("will", ["writer"], "write", ["class:internal"]),
		"want": {"allow": true},
	},
	"only an operator erases": {
		"input": asked("will", ["writer"], "erase", ["class:internal"]),
		"want": {"allow": false},
	},
	"an operator does everything": {
		"input": asked("olga", ["operator"], "erase", ["class:secret"]),
		"want": {"allow": true},
	},
	"an operator does nothing else": {
		"input": asked("olga", ["operator"], "copy", ["class:secret"]),
		"want": {"allow": false},
	},
	"a word of the data that is no action is denied": {
		"input": asked("anna", ["reader"], "redact", ["pii:high"]),
		"want": {"allow": false},
	},
	"a namespace as a whole is the operator's": {
		"input": asked("olga", ["operator"], "write", ["crp:namespace"]),
		"want": {"allow": true},
	},
	"a namespace as a whole is not the writer's": {
		"input": asked("will", ["writer"], "write", ["crp:namespace"]),
		"want": {"allow": false},
	},
	"another tenant's name is granted to nobody": {
		"input": asked("olga", ["operator"], "read", ["class:internal", "tenant:globex"]),
		"want": {"allow": false},
	},
	"an operator reads personal data without the persons": {
		"input": asked("olga", ["operator"], "read", ["class:secret", "pii:high"]),
		"want": {"allow": true, "redact": ["*"]},
	},
	"a label that is no word is denied to everybody": {
		"input": asked("olga", ["operator"], "read", ["class:secret", null]),
		"want": {"allow": false},
	},
	"things without a label are denied": {
		"input": asked("olga", ["operator"], "read", []),
		"want": {"allow": false},
	},
	"things of another tenant are denied": {
		"input": {
			"subject": {"tenant": "acme", "name": "olga", "roles": ["operator"]},
			"action": "read",
			"resource": {"tenant": "globex", "labels": ["class:public"]},
		},
		"want": {"allow": false},
	},
	"a subject without a tenant's field is denied": {
		"input": {
			"subject": {"name": "olga", "roles": ["operator"]},
			"action": "read",
			"resource": {"tenant": "", "labels": ["class:public"]},
		},
		"want": {"allow": false},
	},
	"an input with nothing in it is denied": {
		"input": {},
		"want": {"allow": false},
	},
	"an unknown action is denied": {
		"input": asked("anna", ["reader"], "copy", ["class:public"]),
		"want": {"allow": false},
	},
	"low personal data lose what leads to a person": {
		"input": asked("anna", ["reader"], "read", ["pii:low"]),
		"want": {"allow": true, "redact": ["email", "phone", "street_address"]},
	},
	"high personal data lose every kind": {
		"input": asked("anna", ["reader"], "read", ["pii:high"]),
		"want": {"allow": true, "redact": ["*"]},
	},
	"kinds of all labels must be gone": {
		"input": asked("will", ["writer"], "read", ["class:internal", "pii:high", "pii:low"]),
		"want": {"allow": true, "redact": ["*", "email", "phone", "street_address"]},
	},
	"the privacy officer reads personal data": {
		"input": asked("pia", ["reader", "privacy-officer"], "read", ["pii:high"]),
		"want": {"allow": true, "redact": []},
	},
	"a writer writes personal data": {
		"input": asked("will", ["writer"], "write", ["pii:high"]),
		"want": {"allow": true},
	},
}
