//! `[group.NAME]` and `[upstream.NAME]`: their effect on endpoints.

use super::*;

#[test]
fn an_endpoint_of_a_group_is_as_if_all_stood_in_it() {
    let grouped = good(
        "[server]\nsecurity_headers = true\nanswer_headers = { X-A = 'server', X-B = 'server' }\n\
         [upstream.app]\nurl = ['http://127.0.0.1:1', 'http://127.0.0.1:2']\nretries = 0\nhealth = '/up'\n\
         [group.api]\nprefix = '/api'\nupstream = 'app'\nrate = '5/s per ip'\ntimeout = '3s'\n\
         cors = { origins = 'HTTPS://a.example' }\nanswer_headers = { x-a = 'group' }\ncache = { local = '2s' }\n\
         [[endpoint]]\ngroup = 'api'\nroute = '* /{rest...}'\n\
         [[endpoint]]\ngroup = 'api'\nroute = 'GET /'\nconstant = { a = 1 }\nrate = '9/s'\ncors = false\n\
         [[endpoint]]\ngroup = 'api'\nroute = 'POST /sql'\nsql = 'SELECT 1'\n\
         [[endpoint]]\nroute = 'PUT /up'\nupstream = 'app'\nretries = 3\n",
    );
    let spelled = good(
        "[server]\nsecurity_headers = true\nanswer_headers = { X-A = 'server', X-B = 'server' }\n\
         [[endpoint]]\nroute = '* /api/{rest...}'\nproxy = ['http://127.0.0.1:1', 'http://127.0.0.1:2']\nretries = 0\n\
         health = '/up'\nrate = '5/s per ip'\ntimeout = '3s'\ncors = { origins = ['https://a.example'] }\n\
         answer_headers = { x-a = 'group' }\ncache = { local = '2s' }\n\
         [[endpoint]]\nroute = 'GET /api'\nconstant = { a = 1 }\nrate = '9/s'\ntimeout = '3s'\n\
         answer_headers = { x-a = 'group' }\ncache = { local = '2s' }\n\
         [[endpoint]]\nroute = 'POST /api/sql'\nsql = 'SELECT 1'\nrate = '5/s per ip'\ntimeout = '3s'\n\
         cors = { origins = ['https://a.example'] }\nanswer_headers = { x-a = 'group' }\n\
         [[endpoint]]\nroute = 'PUT /up'\nproxy = ['http://127.0.0.1:1', 'http://127.0.0.1:2']\nretries = 3\nhealth = '/up'\n",
    );
    let unplaced = |config: &Config| {
        let mut endpoints = config.endpoints.clone();
        endpoints.iter_mut().for_each(|endpoint| endpoint.line = 0);
        endpoints
    };
    for (grouped, spelled) in unplaced(&grouped).iter().zip(&unplaced(&spelled)) {
        assert_eq!(grouped, spelled);
    }
    assert_eq!(grouped.endpoints.len(), 4);
    let headers = &grouped.endpoints[0].answer_headers.headers;
    assert_eq!(headers, &[("x-a".to_owned(), "group".to_owned()), ("X-B".to_owned(), "server".to_owned())]);
}
