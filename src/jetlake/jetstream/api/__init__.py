"""The JetStream API: `dispatch.Api` takes requests on `$JS.API.…`; tables of endpoints say who handles which."""
